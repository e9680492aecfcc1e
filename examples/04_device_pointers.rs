//! Hands device pointers and a stream of one's own to the kernels: G = ZᵀZ and a ridge solve where Z lies on the device.
//!
//! `cargo run --release --features cuda --example 04_device_pointers`; set `MUSO_VGPU` to the library of the virtual GPU
//! where there is no other. cudarc stands for whatever stack owns the memory: the CUDA runtime, PyTorch, burn.
#![allow(unsafe_code)]

use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut};
use muso::engine::Dtype;
use muso::gpu::interop::{self, RawMatrix};
use muso::gpu::{Context, Driver, Staging, Stream};

/// Describes a dense row-major matrix at a device pointer.
fn matrix(pointer: u64, rows: usize, cols: usize, dtype: Dtype) -> RawMatrix {
    let pitch = cols;
    RawMatrix {
        pointer,
        rows,
        cols,
        pitch,
        dtype,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = match Driver::from_environment() {
        Ok(driver) => driver,
        Err(why) => {
            println!("nothing to show: {why}");
            return Ok(());
        }
    };
    // Yours: 500 rows of 32 features in f32, G in f64, one right-hand side of ones, all on a stream of your own.
    let queue = CudaContext::new(0)?.new_stream()?;
    let values: Vec<f32> = (0..500 * 32).map(|i| ((i * i) as f32).sin()).collect();
    let (z, mut g) = (queue.clone_htod(&values)?, queue.alloc_zeros(32 * 32)?);
    let mut x = queue.clone_htod(&[[1.0; 2]; 32].concat())?; // two columns: a pitch is even

    let (rows, _z) = z.device_ptr(&queue);
    let (sums, _g) = DevicePtrMut::<f64>::device_ptr_mut(&mut g, &queue);
    let context = Context::new(&driver, 0)?;
    let rhs = x.device_ptr_mut(&queue).0;
    // SAFETY: the pointers are those of the three arrays above, dense and of these shapes; arrays and stream outlive the
    // work, all of which is on that stream, in the primary context, which is what cudarc opens.
    unsafe {
        let stream = Stream::from_raw(&context, queue.cu_stream());
        let gram = matrix(sums, 32, 32, Dtype::F64);
        interop::gram_update(&stream, matrix(rows, 500, 32, Dtype::F32), false, 1.0, gram)?;
        let factor = interop::factor(&stream, &Staging::new(&context), gram, 1e-3)?;
        interop::solve(&stream, &factor, matrix(rhs, 32, 2, Dtype::F64))?;
    }
    let x = queue.clone_dtoh(&x)?;
    println!("(ZᵀZ + λI)⁻¹ 1 begins with {:.6}, {:.6}", x[0], x[2]);
    Ok(())
}
