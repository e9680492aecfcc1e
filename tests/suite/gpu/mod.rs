//! The CUDA engine and the interfaces below it, on hardware where there is some and else on the virtual GPU.
//!
//! Which of the two is said once on standard error. On the virtual GPU every synchronisation fails if its checks found
//! anything, so a test that passes there has neither raced nor read what nobody wrote. With feature `cuda` there is always
//! a device: where the virtual one cannot be built the tests fail. Without the feature they are reported as ignored.

#[cfg(feature = "cuda")]
mod capi;
#[cfg(all(feature = "cuda", feature = "nn"))]
mod compiler;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod engine;
#[cfg(feature = "cuda")]
mod exact;
#[cfg(all(feature = "cuda", feature = "nn"))]
mod lanes;
#[cfg(all(feature = "cuda", feature = "nn"))]
mod tensors;
#[cfg(feature = "cuda")]
pub(crate) use device::virtual_library;

#[cfg(not(feature = "cuda"))]
#[test]
#[ignore = "built without feature `cuda`: no test of the GPU was run"]
fn gpu() {
    unreachable!("there is nothing to run");
}
