//! Kernels small enough to be written by hand, for what compilers do not emit on demand.

use std::sync::Arc;

use super::{Launch, Outcome, run};
use crate::{check::Kind, memory::Memory, program::Program, ptx};

/// A module with one kernel `k` of two pointers, with registers of all kinds.
fn module(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 k_in, .param .u64 k_out)\n{{\n\
         .reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<30>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<30>;\n.reg .f64 %fd<9>;\n\
         ld.param.u64 %rd1, [k_in];\nld.param.u64 %rd2, [k_out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n\
         mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n\
         {body}\n}}\n"
    )
}

struct Run {
    outcome: Outcome,
    out: Vec<u32>,
}

struct Case<'a> {
    text: &'a str,
    grid: u32,
    block: u32,
    input: &'a [u32],
    out: usize,
    cooperative: bool,
}

fn load(text: &str) -> (Memory, Arc<Program>) {
    let memory = Memory::new(1 << 24);
    let module = ptx::parse(text).unwrap();
    let program = Program::load(&module, &memory).unwrap();
    (memory, program)
}

impl Case<'_> {
    fn run(&self) -> Run {
        let (memory, program) = load(self.text);
        let bytes: Vec<u8> = self.input.iter().flat_map(|w| w.to_le_bytes()).collect();
        let input = memory.allocate(bytes.len() as u64).unwrap();
        memory.write(input, &bytes).unwrap();
        let output = memory.allocate(4 * self.out as u64).unwrap();
        memory.fill(output, &[0], 4 * self.out as u64).unwrap();
        let mut params = input.to_le_bytes().to_vec();
        params.extend(output.to_le_bytes());
        let outcome = run(
            &memory,
            &Launch {
                program: &program,
                kernel: program.kernel("k").unwrap(),
                grid: [self.grid, 1, 1],
                block: [self.block, 1, 1],
                dynamic_shared: 0,
                params: &params,
                cooperative: self.cooperative,
            },
        );
        let mut back = vec![0; 4 * self.out];
        memory.read(output, &mut back).unwrap();
        let out = back
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&b| u32::from_le_bytes(b))
            .collect();
        Run { outcome, out }
    }
}

/// One block on 0, 1, 2, …; as many words out as threads.
fn one_block(body: &str, threads: u32) -> Run {
    let input: Vec<u32> = (0..threads).collect();
    Case {
        text: &module(body),
        grid: 1,
        block: threads,
        input: &input,
        out: threads as usize,
        cooperative: false,
    }
    .run()
}

fn kinds(run: &Run) -> Vec<Kind> {
    run.outcome.findings.iter().map(|f| f.kind).collect()
}

#[test]
fn lanes_that_part_meet_again() {
    // A loop that lanes leave one by one, then a vote of all of them.
    let run = one_block(
        "mov.u32 %r3, 0;\n\
         LOOP: add.u32 %r3, %r3, 3;\nsetp.lt.u32 %p1, %r3, %r1;\n@%p1 bra LOOP;\n\
         vote.sync.ballot.b32 %r4, 1, 0xffffffff;\n\
         and.b32 %r5, %r1, 1;\nsetp.eq.u32 %p2, %r5, 0;\n@%p2 bra EVEN;\nadd.u32 %r3, %r3, 100;\nbra DONE;\n\
         EVEN: add.u32 %r3, %r3, 200;\n\
         DONE: popc.b32 %r6, %r4;\nmul.lo.u32 %r6, %r6, 1000;\nadd.u32 %r3, %r3, %r6;\n\
         st.global.u32 [%rd5], %r3;\nret;",
        32,
    );
    assert_eq!(kinds(&run), []);
    for (i, &word) in (0u32..).zip(&run.out) {
        let steps = i.div_ceil(3).max(1) * 3;
        assert_eq!(
            word,
            steps + if i % 2 == 0 { 200 } else { 100 } + 32000,
            "lane {i}"
        );
    }
    assert!(run.outcome.counters.divergent_branches > 5);
}

#[test]
fn lanes_that_left_do_not_keep_the_rest_from_a_barrier() {
    // `if (odd) { store; return; }` within another branch, then a barrier.
    let run = one_block(
        "and.b32 %r3, %r1, 3;\nsetp.gt.u32 %p1, %r3, 1;\n@%p1 bra OUTER;\nbra REST;\n\
         OUTER: setp.eq.u32 %p2, %r3, 3;\n@!%p2 bra REST;\nst.global.u32 [%rd5], 7;\nbra END;\n\
         REST: bar.sync 0;\nst.global.u32 [%rd5], 9;\n\
         END: ret;",
        64,
    );
    assert_eq!(kinds(&run), []);
    for (i, &word) in run.out.iter().enumerate() {
        assert_eq!(word, if i % 4 == 3 { 7 } else { 9 });
    }
}

#[test]
fn calls_are_inlined_with_their_parameters() {
    let text = module(
        "{\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r1;\ncall.uni (r0), twice, (p0);\nld.param.b32 %r3, [r0];\n}\n\
         setp.gt.u32 %p1, %r1, 15;\n{\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r3;\n\
         @%p1 call.uni (r0), twice, (p0);\n@%p1 ld.param.b32 %r3, [r0];\n}\n\
         st.global.u32 [%rd5], %r3;\nret;",
    )
    .replace(
        ".visible .entry",
        ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .b32 %r<3>;\n.reg .pred %p;\nld.param.b32 %r1, [in];\n\
         setp.eq.u32 %p, %r1, 4;\n@%p bra SKIP;\nadd.u32 %r1, %r1, %r1;\nst.param.b32 [out], %r1;\nret;\n\
         SKIP: mov.u32 %r2, 44;\nst.param.b32 [out], %r2;\nret;\n}\n.visible .entry",
    );
    let run = Case {
        text: &text,
        grid: 1,
        block: 32,
        input: &[0],
        out: 32,
        cooperative: false,
    }
    .run();
    assert_eq!(kinds(&run), []);
    for (i, &word) in (0u32..).zip(&run.out) {
        let once = if i == 4 { 44 } else { 2 * i };
        assert_eq!(word, if i > 15 { 2 * once } else { once });
    }
}

#[test]
fn branch_tables_take_every_target() {
    let run = one_block(
        "and.b32 %r3, %r1, 3;\n\
         TABLE: .branchtargets A, B, C, B;\n\
         brx.idx %r3, TABLE;\n\
         A: mov.u32 %r4, 10;\nbra OUT;\nB: mov.u32 %r4, 20;\nbra OUT;\nC: mov.u32 %r4, 30;\n\
         OUT: activemask.b32 %r5;\npopc.b32 %r5, %r5;\nadd.u32 %r4, %r4, %r5;\nst.global.u32 [%rd5], %r4;\nret;",
        32,
    );
    assert_eq!(kinds(&run), []);
    for (i, &word) in run.out.iter().enumerate() {
        assert_eq!(word, [10, 20, 30, 20][i % 4] + 32);
    }
}

#[test]
fn carries_go_from_word_to_word() {
    let run = one_block(
        "mov.u32 %r3, 0xffffffff;\nadd.cc.u32 %r4, %r3, %r1;\naddc.cc.u32 %r5, %r3, 0;\naddc.u32 %r6, 0, 0;\n\
         sub.cc.u32 %r7, %r1, 1;\nsubc.u32 %r8, 5, 0;\nmul.lo.u32 %r8, %r8, 16;\nadd.u32 %r6, %r6, %r8;\n\
         st.global.u32 [%rd5], %r6;\nret;",
        32,
    );
    assert_eq!(run.out[0], 4 * 16);
    assert!(run.out[1..].iter().all(|&w| w == 1 + 5 * 16));
}

#[test]
fn words_are_taken_apart_and_put_together() {
    let run = one_block(
        "mov.b32 {%h1, %h2}, 0x00030001;\nmov.b32 %r3, {%h2, %h1};\nmov.b64 %rd6, {%r3, %r1};\nmov.b64 {%r4, %r5}, %rd6;\n\
         prmt.b32 %r6, %r4, %r5, 0x4501;\nst.global.u32 [%rd5], %r6;\nret;",
        32,
    );
    // %r4 is 0x00010003; bytes 1, 0, then those of %r5.
    for (i, &word) in (0u32..).zip(&run.out) {
        assert_eq!(word, i << 24 | 0x0300, "lane {i}");
    }
}

const LAST_BLOCK: &str = "\
     cvt.u64.u32 %rd6, %r2;\nshl.b64 %rd6, %rd6, 2;\nadd.s64 %rd7, %rd2, %rd6;\n\
     setp.ne.u32 %p1, %r1, 0;\n@%p1 bra END;\nadd.u32 %r3, %r2, 1;\nst.global.u32 [%rd7+4], %r3;\nFENCE\
     atom.global.add.u32 %r4, [%rd1], 1;\nmov.u32 %r5, %nctaid.x;\nsub.u32 %r5, %r5, 1;\n\
     setp.ne.u32 %p2, %r4, %r5;\n@%p2 bra END;\nmov.u32 %r6, 0;\nmov.u32 %r7, 0;\nmov.u64 %rd8, %rd2;\n\
     SUM: ld.global.u32 %r8, [%rd8+4];\nadd.u32 %r6, %r6, %r8;\nadd.s64 %rd8, %rd8, 4;\nadd.u32 %r7, %r7, 1;\n\
     setp.le.u32 %p3, %r7, %r5;\n@%p3 bra SUM;\nst.global.u32 [%rd2], %r6;\n\
     END: ret;";

#[test]
fn the_last_block_may_read_what_others_fenced() {
    for (fence, expected) in [("membar.gl;\n", vec![]), ("", vec![Kind::GlobalRace])] {
        let text = module(&LAST_BLOCK.replace("FENCE", fence));
        let run = Case {
            text: &text,
            grid: 20,
            block: 32,
            input: &[0],
            out: 21,
            cooperative: false,
        }
        .run();
        assert_eq!(kinds(&run), expected, "{:?}", run.outcome.findings);
        assert_eq!(run.out[0], 20 * 21 / 2);
    }
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    // Every block adds to a counter and waits until all have; then reads what its neighbour wrote.
    let text = module(
        "mov.u32 %r3, %nctaid.x;\nmul.wide.u32 %rd6, %r2, 4;\nadd.s64 %rd7, %rd2, %rd6;\nsetp.ne.u32 %p1, %r1, 0;\n\
         @%p1 bra MEET;\nst.global.u32 [%rd7], %r2;\nmembar.gl;\nred.global.add.u32 [%rd1], 1;\n\
         WAIT: ld.volatile.global.u32 %r4, [%rd1];\nsetp.lt.u32 %p2, %r4, %r3;\n@%p2 bra WAIT;\nmembar.gl;\n\
         MEET: bar.sync 0;\n@%p1 bra END;\nadd.u32 %r5, %r2, 1;\nrem.u32 %r5, %r5, %r3;\nmul.wide.u32 %rd8, %r5, 4;\n\
         add.s64 %rd8, %rd2, %rd8;\nld.global.u32 %r6, [%rd8];\nst.global.u32 [%rd7+64], %r6;\n\
         END: ret;",
    );
    let run = Case {
        text: &text,
        grid: 16,
        block: 64,
        input: &[0],
        out: 32,
        cooperative: true,
    }
    .run();
    assert_eq!(kinds(&run), [], "{:?}", run.outcome.findings);
    for i in 0..16 {
        assert_eq!(run.out[16 + i], (i as u32 + 1) % 16);
    }
}

#[test]
fn halves_of_one_word_by_two_blocks_are_no_race() {
    let text = module(
        "mul.wide.u32 %rd6, %r2, 2;\nadd.s64 %rd7, %rd2, %rd6;\ncvt.u16.u32 %h1, %r2;\nsetp.eq.u32 %p1, %r1, 0;\n\
         @%p1 st.global.u16 [%rd7], %h1;\nret;",
    );
    let run = Case {
        text: &text,
        grid: 8,
        block: 32,
        input: &[0],
        out: 4,
        cooperative: false,
    }
    .run();
    assert_eq!(kinds(&run), []);
    assert_eq!(run.out, [0x1_0000, 0x3_0002, 0x5_0004, 0x7_0006]);
}

#[test]
fn what_is_touched_is_told_in_ranges_and_sectors() {
    let text = module(
        "setp.gt.u32 %p1, %r1, 9;\n@%p1 bra END;\nld.global.u32 %r3, [%rd4+8];\nst.global.u32 [%rd5], %r3;\nEND: ret;",
    );
    let input: Vec<u32> = (100..200).collect();
    let Run { outcome, out } = Case {
        text: &text,
        grid: 1,
        block: 64,
        input: &input,
        out: 64,
        cooperative: false,
    }
    .run();
    assert_eq!(
        out[..11],
        [102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 0]
    );
    let [(start, end)] = outcome.touched.read[..] else {
        panic!("{:?}", outcome.touched);
    };
    assert_eq!(end - start, 40);
    assert_eq!(start % 512, 8);
    let [(start, end)] = outcome.touched.written[..] else {
        panic!("{:?}", outcome.touched);
    };
    assert_eq!((start % 512, end - start), (0, 40));
    let counters = outcome.counters;
    assert_eq!((counters.load_sectors, counters.store_sectors), (2, 2));
    assert_eq!(
        (counters.unique_load_sectors, counters.unique_store_sectors),
        (2, 2)
    );
}

#[test]
fn counters_count_lanes_and_conflicts() {
    let run = one_block(
        ".shared .align 4 .b8 tile[4096];\nmov.u32 %r3, tile;\nshl.b32 %r4, %r1, 7;\nadd.u32 %r4, %r3, %r4;\n\
         st.shared.u32 [%r4], %r1;\nld.shared.u32 %r5, [%r4];\ncvt.rn.f32.u32 %f1, %r5;\n\
         fma.rn.f32 %f2, %f1, %f1, %f1;\ncvt.rzi.u32.f32 %r6, %f2;\nst.global.u32 [%rd5], %r6;\nret;",
        32,
    );
    assert_eq!(run.out[3], 12);
    let counters = run.outcome.counters;
    assert_eq!(
        (
            counters.shared_requests,
            counters.shared_passes,
            counters.bank_conflicts
        ),
        (2, 64, 62)
    );
    assert_eq!(
        (counters.flops_f32, counters.f32, counters.conversions),
        (64, 1, 2)
    );
    // Neither those to shared memory nor parameters are requests to global memory.
    assert_eq!((counters.memory, counters.global_requests), (5, 1));
    assert_eq!(
        counters.thread_instructions,
        32 * counters.warp_instructions
    );
}

#[test]
fn warps_go_in_either_order_between_barriers() {
    // Between two barriers every warp writes its number to one word: the last one stays. 64 rounds, two turns each.
    let run = one_block(
        "shr.u32 %r3, %r1, 5;\nadd.u32 %r3, %r3, 1;\nmov.u64 %rd6, %rd2;\nmov.u32 %r4, 0;\n\
         LOOP: st.global.u32 [%rd6], %r3;\nbar.sync 0;\nbar.sync 0;\nadd.s64 %rd6, %rd6, 4;\nadd.u32 %r4, %r4, 1;\n\
         setp.lt.u32 %p1, %r4, 64;\n@%p1 bra LOOP;\nret;",
        64,
    );
    assert_eq!(kinds(&run), []);
    assert_eq!(run.out[0], 2, "forwards at first");
    let backwards = run.out.iter().filter(|&&last| last == 1).count();
    assert!((16..48).contains(&backwards), "{:?}", run.out);
}

#[test]
fn the_place_of_a_finding_is_named() {
    let text = module("@!%p1 bra NEXT;\nNEXT: .loc 1 77 3\nst.global.u32 [%rd5+4096], %r1;\nret;")
        .replace(".visible", ".file 1 \"gram.cu\"\n.visible");
    let run = Case {
        text: &text,
        grid: 2,
        block: 40,
        input: &[0],
        out: 40,
        cooperative: false,
    }
    .run();
    assert!(run.outcome.fatal);
    let [finding] = &run.outcome.findings[..] else {
        panic!("{:?}", run.outcome.findings);
    };
    assert_eq!(finding.kind, Kind::OutOfBounds);
    assert_eq!(finding.count, 80);
    assert_eq!(finding.site.source.as_deref(), Some("gram.cu:77"));
    assert_eq!((finding.site.block, finding.site.thread), ([0; 3], [0; 3]));
    let line = text
        .lines()
        .position(|l| l.starts_with("st.global"))
        .unwrap()
        + 1;
    assert_eq!(finding.site.ptx_line as usize, line);
}

#[test]
fn what_is_not_known_is_an_error_with_its_line() {
    for (body, says) in [
        ("frobnicate.u32 %r1, %r1;", "not known"),
        ("add.cc.zig.u32 %r1, %r1, %r1;", "zig"),
        ("add.u32 %r1, %r1;", "operands"),
        ("add.u32 %r1, %r1, %rd1;", "64 bits"),
        ("add.u32 %r1, %r99, %r1;", "%r99"),
        ("bra NOWHERE;", "NOWHERE"),
        ("wgmma.fence.sync.aligned;", "not supported"),
        ("call.uni k2, ();", "k2"),
    ] {
        let text = module(body);
        let error = ptx::parse(&text)
            .and_then(|m| Program::load(&m, &Memory::new(1 << 20)))
            .unwrap_err();
        assert!(error.message.contains(says), "{body}: {error}");
        let line = text.lines().position(|l| l.starts_with(body)).unwrap() + 1;
        assert_eq!(error.line as usize, line, "{body}");
    }
}

#[test]
fn globals_hold_their_initial_values_and_addresses() {
    let text = module(
        "ld.global.u32 %r3, [table+4];\nld.global.u64 %rd6, [where+8];\nld.global.u32 %r4, [%rd6];\nadd.u32 %r3, %r3, %r4;\n\
         ld.const.u8 %r5, [bytes+1];\nadd.u32 %r3, %r3, %r5;\nst.global.u32 [%rd5], %r3;\nret;",
    )
    .replace(
        ".visible",
        ".global .align 4 .u32 table[4] = {1, 20, 0x12C};\n.global .u64 where[2] = {0, generic(table)+8};\n\
         .const .align 1 .b8 bytes[3] = {7, 5};\n.visible",
    );
    let run = Case {
        text: &text,
        grid: 1,
        block: 32,
        input: &[0],
        out: 32,
        cooperative: false,
    }
    .run();
    assert_eq!(kinds(&run), []);
    assert!(run.out.iter().all(|&w| w == 20 + 300 + 5));
}

#[test]
fn functions_may_call_themselves() {
    let text = module(
        "{\n.param .b32 p0;\n.param .b32 r0;\nand.b32 %r3, %r1, 7;\nst.param.b32 [p0], %r3;\n\
         call.uni (r0), sum, (p0);\nld.param.b32 %r4, [r0];\n}\n\
         mul.lo.u32 %r4, %r4, 100;\nadd.u32 %r4, %r4, %r1;\nst.global.u32 [%rd5], %r4;\nret;",
    )
    .replace(
        ".visible .entry",
        // sum(n) = n == 0 ? 0 : n + sum(n - 1), with n kept in the frame over the call.
        ".func (.param .b32 out) sum(.param .b32 in)\n{\n.local .align 8 .b8 keep[8];\n.reg .b32 %r<5>;\n.reg .pred %p;\n\
         .reg .b64 %rd<3>;\nld.param.b32 %r1, [in];\nmov.u32 %r2, 0;\nsetp.eq.u32 %p, %r1, 0;\n@%p bra DONE;\n\
         mov.u64 %rd1, keep;\nst.local.u32 [%rd1+4], %r1;\nsub.u32 %r3, %r1, 1;\n\
         {\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r3;\ncall.uni (r0), sum, (p0);\n\
         ld.param.b32 %r2, [r0];\n}\nld.local.u32 %r4, [keep+4];\nadd.u32 %r2, %r2, %r4;\n\
         DONE: st.param.b32 [out], %r2;\nret;\n}\n.visible .entry",
    );
    let run = Case {
        text: &text,
        grid: 1,
        block: 32,
        input: &[0],
        out: 32,
        cooperative: false,
    }
    .run();
    assert_eq!(kinds(&run), []);
    for (i, &word) in (0u32..).zip(&run.out) {
        let n = i % 8;
        assert_eq!(word, n * (n + 1) / 2 * 100 + i);
    }
}

#[test]
fn endless_recursion_is_a_finding() {
    let text = module("call.uni again;\nret;").replace(
        ".visible .entry",
        ".func again()\n{\n.local .align 16 .b8 keep[64];\ncall.uni again;\nret;\n}\n.visible .entry",
    );
    let run = Case {
        text: &text,
        grid: 1,
        block: 32,
        input: &[0],
        out: 1,
        cooperative: false,
    }
    .run();
    assert_eq!(kinds(&run), [Kind::Trap]);
    assert!(run.outcome.findings[0].message.contains("stack"));
}

/// Text that is damaged anywhere is refused or loaded, never a panic.
#[test]
fn damaged_modules_are_refused() {
    let text = module(
        ".shared .align 16 .b8 tile[256];\n.local .align 8 .b8 depot[32];\n\
         LOOP: @%p1 bra END;\nmov.b64 {%r3, %r4}, %rd1;\nld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4+-16];\n\
         setp.lt.and.f32 %p1|%p2, %f1, 0f3F800000, !%p3;\nshfl.sync.bfly.b32 %r5|%p3, %r3, 1, 31, -1;\n\
         cvt.rn.f16x2.f32 %r6, %f1, %f2;\nfma.rn.f64 %fd1, %fd2, %fd3, 0d3FF0000000000000;\n\
         atom.global.add.u32 %r7, [%rd5], 1;\ncp.async.ca.shared.global [tile+16], [%rd4], 16, %r7;\n\
         mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4},{%r1,%r2},{%r3},{%f1,%f2,%f3,%f4};\n\
         st.shared.v2.b32 [tile+8], {%r1, %r2};\nbar.sync 0;\nbra LOOP;\nEND: ret;",
    )
    .replace(".visible", ".global .align 4 .b8 data[8] = {1, 2, 0xFF(data)};\n.visible");
    assert!(
        ptx::parse(&text)
            .and_then(|m| Program::load(&m, &Memory::new(1 << 20)))
            .is_ok()
    );
    let words: Vec<&str> = text
        .split_inclusive([' ', ',', '.', ';', '\n', '[', '%'])
        .collect();
    let mut state = 1u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let mut refused = 0;
    for _ in 0..4000 {
        let mut damaged = words.clone();
        for _ in 0..1 + next(3) {
            let (at, other) = (next(damaged.len()), next(words.len()));
            match next(3) {
                0 => drop(damaged.remove(at)),
                1 => damaged[at] = words[other],
                _ => damaged.insert(at, words[other]),
            }
        }
        let loaded =
            ptx::parse(&damaged.concat()).and_then(|m| Program::load(&m, &Memory::new(1 << 20)));
        refused += u32::from(loaded.is_err());
    }
    assert!(refused > 2000, "{refused}");
}
