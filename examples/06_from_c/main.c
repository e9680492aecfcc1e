/* Opens a device with muso's C interface and closes it again; tests/suite/gpu/ridge.c has a whole fit. */
#include <stdio.h>

#include <muso.h>

int main(void) {
    muso_context *context = NULL;
    switch (muso_context_create(0, &context)) {
    case MUSO_OK:
        puts("device 0 is open");
        muso_context_destroy(context);
        return 0;
    case MUSO_UNAVAILABLE:
        printf("there is no device: %s\n", muso_last_error());
        return 0;
    default:
        fprintf(stderr, "%s\n", muso_last_error());
        return 1;
    }
}
