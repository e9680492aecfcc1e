//! How fast kernels run here: thread instructions a second on a register-blocked Gram kernel, all checks on.
//!
//! `cargo run --release -p muso-vgpu --example speed -- gram.ptx [rows] [columns]`
//!
//! The kernel is `gram(const float* z, double* g, int n, int d)` with blocks of 64 threads for tiles of 64 by 64.

use std::{error::Error, time::Instant};

use vgpu::{
    exec::{self, Launch},
    memory::Memory,
    program::Program,
    ptx,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: speed FILE.ptx [rows] [columns]")?;
    let rows: usize = arguments.next().map_or(Ok(512), |a| a.parse())?;
    let columns: usize = arguments.next().map_or(Ok(256), |a| a.parse())?;

    let memory = Memory::new(4 << 30);
    let module = ptx::parse(&std::fs::read_to_string(path)?)?;
    let program = Program::load(&module, &memory)?;
    let kernel = program
        .kernel("gram")
        .ok_or("the module has no kernel `gram`")?;

    let features: Vec<f32> = (0..rows * columns)
        .map(|i| (i * 7919 % 1013) as f32 / 1013.0 - 0.5)
        .collect();
    let bytes: Vec<u8> = features.iter().flat_map(|x| x.to_le_bytes()).collect();
    let z = memory
        .allocate(bytes.len() as u64)
        .map_err(|e| format!("{e:?}"))?;
    memory.write(z, &bytes).map_err(|f| f.to_string())?;
    let g = memory
        .allocate((columns * columns * 8) as u64)
        .map_err(|e| format!("{e:?}"))?;

    let mut params = Vec::new();
    params.extend_from_slice(&z.to_le_bytes());
    params.extend_from_slice(&g.to_le_bytes());
    params.extend_from_slice(&(rows as u32).to_le_bytes());
    params.extend_from_slice(&(columns as u32).to_le_bytes());
    let tiles = columns.div_ceil(64) as u32;
    let launch = Launch {
        program: &program,
        kernel,
        grid: [tiles, tiles, 1],
        block: [64, 1, 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
    };
    let (start, busy) = (Instant::now(), processor_seconds());
    let outcome = exec::run(&memory, &launch);
    let (seconds, busy) = (start.elapsed().as_secs_f64(), processor_seconds() - busy);

    for finding in &outcome.findings {
        println!("{finding}");
    }
    let mut result = vec![0; columns * columns * 8];
    memory.read(g, &mut result).map_err(|f| f.to_string())?;
    let mut worst = 0f64;
    for i in (0..columns).step_by(37) {
        for j in (0..columns).step_by(41) {
            let expected: f64 = (0..rows)
                .map(|k| {
                    f64::from(features[k * columns + i]) * f64::from(features[k * columns + j])
                })
                .sum();
            let at = (i * columns + j) * 8;
            let mut word = [0; 8];
            word.copy_from_slice(&result[at..at + 8]);
            worst = worst.max((f64::from_le_bytes(word) - expected).abs());
        }
    }
    let million = outcome.counters.thread_instructions as f64 / 1e6;
    println!("virtual: {:#?}", outcome.counters);
    println!("registers {}, greatest error {worst:.3e}", kernel.registers);
    println!(
        "{million:.0} million thread instructions in {seconds:.3} s: {:.0} million a second, {:.0} million a second of a core",
        million / seconds,
        million / busy
    );
    Ok(())
}

/// Time that the cores have spent on this process; unlike the wall's it does not suffer from what else they do.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing, and that is all the call does.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
