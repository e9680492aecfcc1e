//! The kernel half of the bug zoo: does the virtual GPU catch what is broken, and nothing else?
//!
//! Every specimen is a kernel of `zoo/kernels.cu` with one defect that real programs have. Its report must be of the
//! right kind and name the kernel, the line of the source, the instruction, the block and the thread. Its healthy twin
//! runs on the same data with no finding at all.

// Each suite uses a part of it.
#[allow(dead_code)]
mod common;

use std::process::ExitCode;

use common::{
    Case,
    device::{Buffer, Gpu, Start},
};
use vgpu::{
    check::{Finding, Kind},
    exec::Outcome,
};

/// A defect and how it should be reported.
struct Specimen {
    /// The kernel; the twin's name has `_healthy` after it.
    kernel: &'static str,
    kind: Kind,
    /// How the PTX instruction begins.
    instruction: &'static str,
    block: u32,
    /// The thread that is to blame; `None` where it depends on the order in which the warps run.
    thread: Option<u32>,
    /// What else the message should say.
    says: &'static str,
    launch: fn(&Gpu, &str, bool) -> Outcome,
}

const SPECIMENS: &[Specimen] = &[
    Specimen {
        kernel: "past_the_end",
        kind: Kind::OutOfBounds,
        instruction: "st.global",
        block: 1,
        thread: Some(36),
        says: "",
        launch: |gpu, kernel, _| {
            let (given, out) = (gpu.upload(&[1f32; 100]), gpu.uninitialised::<f32>(100));
            gpu.kernel(kernel, 2, 64)
                .buffer(&given)
                .buffer(&out)
                .value(100)
                .outcome()
        },
    },
    Specimen {
        kernel: "misaligned",
        kind: Kind::Misaligned,
        instruction: "ld.global",
        block: 0,
        thread: Some(0),
        says: "16",
        launch: floats,
    },
    Specimen {
        kernel: "reader",
        kind: Kind::UseAfterFree,
        instruction: "ld.global",
        block: 0,
        thread: Some(0),
        says: "",
        launch: |gpu, kernel, healthy| {
            let (given, out) = (gpu.upload(&[1f32; 64]), gpu.uninitialised::<f32>(64));
            if !healthy {
                gpu.memory.free(given.address).expect("it was allocated");
            }
            start(gpu, kernel, &given, &out).outcome()
        },
    },
    Specimen {
        kernel: "reader",
        kind: Kind::UninitialisedGlobal,
        instruction: "ld.global",
        block: 0,
        thread: Some(40),
        says: "",
        launch: |gpu, kernel, healthy| {
            let (given, out) = (gpu.uninitialised::<f32>(64), gpu.uninitialised::<f32>(64));
            let written = vec![1; if healthy { 64 } else { 40 } * size_of::<f32>()];
            gpu.memory
                .write(given.address, &written)
                .expect("in bounds");
            start(gpu, kernel, &given, &out).outcome()
        },
    },
    Specimen {
        kernel: "half_filled",
        kind: Kind::UninitialisedShared,
        instruction: "ld.shared",
        block: 0,
        thread: Some(32),
        says: "",
        launch: floats,
    },
    Specimen {
        kernel: "past_the_tile",
        kind: Kind::OutOfBounds,
        instruction: "st.shared",
        block: 0,
        thread: Some(63),
        says: "shared",
        launch: floats,
    },
    Specimen {
        kernel: "past_the_stack",
        kind: Kind::OutOfBounds,
        instruction: "ld.local",
        block: 0,
        thread: Some(5),
        says: "local",
        launch: |gpu, kernel, _| {
            let data: Vec<i32> = (0..64).map(|i| i % 8).collect();
            let (given, out) = (gpu.upload(&data), gpu.uninitialised::<i32>(64));
            start(gpu, kernel, &given, &out).outcome()
        },
    },
    Specimen {
        kernel: "missing_barrier",
        kind: Kind::SharedRace,
        instruction: "",
        block: 0,
        thread: None,
        says: "",
        launch: floats,
    },
    Specimen {
        kernel: "two_writers",
        kind: Kind::SharedRace,
        instruction: "st.shared",
        block: 0,
        thread: None,
        says: "",
        launch: floats,
    },
    Specimen {
        kernel: "hasty_reduction",
        kind: Kind::SharedRace,
        instruction: "",
        block: 0,
        thread: None,
        says: "",
        launch: |gpu, kernel, _| {
            let (given, out) = (gpu.upload(&[1f32; 128]), gpu.uninitialised::<f32>(128));
            gpu.kernel(kernel, 1, 128)
                .buffer(&given)
                .buffer(&out)
                .outcome()
        },
    },
    Specimen {
        kernel: "block_index_forgotten",
        kind: Kind::GlobalRace,
        instruction: "st.global",
        block: ANY,
        thread: None,
        says: "block",
        launch: |gpu, kernel, _| {
            let (given, out) = (gpu.upload(&[1f32; 64]), gpu.uninitialised::<f32>(256));
            gpu.kernel(kernel, 4, 64)
                .buffer(&given)
                .buffer(&out)
                .outcome()
        },
    },
    Specimen {
        kernel: "in_place",
        kind: Kind::GlobalRace,
        instruction: "",
        block: ANY,
        thread: None,
        says: "block",
        launch: |gpu, kernel, _| {
            let data = gpu.upload(&[1f32; 256]);
            gpu.kernel(kernel, 4, 64).buffer(&data).outcome()
        },
    },
    Specimen {
        kernel: "divergent_barrier",
        kind: Kind::DivergentBarrier,
        instruction: "bar",
        block: 0,
        thread: None,
        says: "",
        launch: |gpu, kernel, _| {
            let (given, out) = (gpu.upload(&[1f32; 64]), gpu.uninitialised::<f32>(64));
            start(gpu, kernel, &given, &out).value(40).outcome()
        },
    },
    Specimen {
        kernel: "absent_lanes",
        kind: Kind::DivergentWarp,
        instruction: "shfl",
        block: 0,
        thread: Some(0),
        says: "",
        launch: |gpu, kernel, _| {
            let (given, out) = (gpu.upload(&[1i32; 32]), gpu.uninitialised::<i32>(32));
            gpu.kernel(kernel, 1, 32)
                .buffer(&given)
                .buffer(&out)
                .outcome()
        },
    },
    Specimen {
        kernel: "not_waited",
        kind: Kind::AsyncNotWaited,
        instruction: "ld.shared",
        block: 0,
        thread: Some(0),
        says: "",
        launch: floats,
    },
    Specimen {
        kernel: "waited_alone",
        kind: Kind::AsyncNotWaited,
        instruction: "",
        block: 0,
        thread: None,
        says: "",
        launch: floats,
    },
    Specimen {
        kernel: "endless",
        kind: Kind::Stuck,
        instruction: "",
        block: 0,
        thread: Some(0),
        says: "",
        launch: |gpu, kernel, _| {
            let (flag, out) = (gpu.upload(&[0i32]), gpu.uninitialised::<i32>(32));
            gpu.kernel(kernel, 1, 32)
                .buffer(&flag)
                .buffer(&out)
                .outcome()
        },
    },
    Specimen {
        kernel: "deadlock",
        kind: Kind::Stuck,
        instruction: "bar",
        block: 0,
        thread: None,
        says: "",
        launch: |gpu, kernel, _| {
            gpu.kernel(kernel, 1, 64)
                .buffer(&gpu.uninitialised::<i32>(64))
                .outcome()
        },
    },
    Specimen {
        kernel: "trapped",
        kind: Kind::Trap,
        instruction: "trap",
        block: 0,
        thread: Some(7),
        says: "",
        launch: counted,
    },
    Specimen {
        kernel: "asserted",
        kind: Kind::Trap,
        instruction: "",
        block: 0,
        thread: Some(7),
        says: "in[threadIdx.x] != 7",
        launch: counted,
    },
];

/// Which block a race between blocks is seen in depends on the order in which they run.
const ANY: u32 = u32::MAX;

fn start<'a, T>(gpu: &'a Gpu, kernel: &'a str, given: &Buffer<T>, out: &Buffer<T>) -> Start<'a> {
    gpu.kernel(kernel, 1, 64).buffer(given).buffer(out)
}

/// 64 threads on ones.
fn floats(gpu: &Gpu, kernel: &str, _: bool) -> Outcome {
    let (given, out) = (gpu.upload(&[1f32; 512]), gpu.uninitialised::<f32>(64));
    start(gpu, kernel, &given, &out).outcome()
}

/// 64 threads on 0, 1, 2, …
fn counted(gpu: &Gpu, kernel: &str, _: bool) -> Outcome {
    let data: Vec<i32> = (0..64).collect();
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<i32>(64));
    start(gpu, kernel, &given, &out).outcome()
}

const SOURCE: &str = include_str!("zoo/kernels.cu");

/// The lines marked for a kernel, from 1.
fn marked(kernel: &str) -> Vec<usize> {
    let marker = format!("// BUG {kernel}");
    SOURCE
        .lines()
        .zip(1..)
        .filter(|(text, _)| text.trim_end().ends_with(&marker))
        .map(|(_, line)| line)
        .collect()
}

fn describe(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing".to_owned();
    }
    findings
        .iter()
        .map(|finding| format!("\n  {finding}"))
        .collect()
}

fn broken(specimen: &Specimen, arch: u32) {
    let gpu = Gpu::load("zoo", "kernels", arch);
    let outcome = (specimen.launch)(&gpu, specimen.kernel, false);
    let all = describe(&outcome.findings);
    let finding = outcome
        .findings
        .iter()
        .find(|finding| finding.kind == specimen.kind)
        .unwrap_or_else(|| panic!("no {:?}; found {all}", specimen.kind));
    let others: Vec<_> = outcome
        .findings
        .iter()
        .filter(|other| other.kind != specimen.kind)
        .collect();
    assert!(others.is_empty(), "more than {:?}: {all}", specimen.kind);

    let site = &finding.site;
    assert_eq!(site.kernel, specimen.kernel, "{all}");
    let lines = marked(specimen.kernel);
    assert!(
        !lines.is_empty(),
        "no line is marked for {}",
        specimen.kernel
    );
    let source = site.source.as_deref().unwrap_or_default();
    let named = |line: &usize| source.ends_with(&format!("kernels.cu:{line}"));
    assert!(
        lines.iter().any(named),
        "{source} is none of lines {lines:?}: {all}"
    );
    let instruction = gpu.line(site.ptx_line);
    assert!(
        instruction.contains(specimen.instruction),
        "PTX line {}: {instruction}: {all}",
        site.ptx_line
    );
    if specimen.block != ANY {
        assert_eq!(site.block, [specimen.block, 0, 0], "{all}");
    }
    if let Some(thread) = specimen.thread {
        assert_eq!(site.thread, [thread, 0, 0], "{all}");
    }
    assert!(
        finding.message.contains(specimen.says),
        "{:?} is not in {}",
        specimen.says,
        finding.message
    );
}

fn healthy(specimen: &Specimen, arch: u32) {
    let gpu = Gpu::load("zoo", "kernels", arch);
    let twin = format!("{}_healthy", specimen.kernel);
    // Where the host is at fault there is one kernel and a healthy launch of it.
    let kernel = if gpu.program.kernel(&twin).is_some() {
        twin.as_str()
    } else {
        specimen.kernel
    };
    let outcome = (specimen.launch)(&gpu, kernel, true);
    assert!(
        outcome.findings.is_empty() && !outcome.fatal,
        "{}",
        describe(&outcome.findings)
    );
}

fn main() -> ExitCode {
    // The endless specimen need not run as long as a real kernel may.
    // SAFETY: no other thread has been started yet.
    unsafe { std::env::set_var("VGPU_INSTRUCTION_LIMIT", "1000000") };
    let mut cases = Vec::new();
    for specimen in SPECIMENS {
        for arch in [80, 90] {
            let name = format!("{}::sm_{arch}::{:?}", specimen.kernel, specimen.kind);
            for (role, test) in [
                ("broken", broken as fn(&Specimen, u32)),
                ("healthy", healthy),
            ] {
                cases.push(Case {
                    name: format!("{name}::{role}"),
                    body: Box::new(move || {
                        test(specimen, arch);
                        Ok(())
                    }),
                });
            }
        }
    }
    common::run(cases)
}
