//! `programs/control.cu`.

use crate::{
    Test,
    common::device::{Gpu, Operands},
    inputs,
};

pub(crate) const TESTS: &[Test] = &[
    ("collatz", 75, collatz),
    ("nested_loops", 75, nested_loops),
    ("early_return", 75, early_return),
    ("switched", 75, switched),
    ("calls", 75, calls),
    ("sorted", 75, sorted),
    ("barrier_votes", 75, barrier_votes),
    ("named_barriers", 75, named_barriers),
    ("arrive_and_wait", 75, arrive_and_wait),
    ("tiled_product", 75, tiled_product),
    ("meeting_again", 75, meeting_again),
];

type Ints = Operands<u64>;

fn collatz(gpu: &Gpu) {
    gpu.map("collatz", &inputs::integers(), |x: Ints| {
        let (mut v, mut steps) = (x.a % 1000 + 1, 0);
        while v != 1 {
            v = if v % 2 == 1 { 3 * v + 1 } else { v / 2 };
            steps += 1;
        }
        [steps]
    });
}

fn nested_loops(gpu: &Gpu) {
    gpu.map("nested_loops", &inputs::integers(), |x: Ints| {
        let mut sum = 0u64;
        for r in (0..x.a % 7).filter(|&r| r != x.c % 5) {
            for c in (0..x.b % 9).take_while(|c| c * r <= 20) {
                for k in (0..c).rev().filter(|k| (k ^ r) % 3 != 0) {
                    sum = sum.wrapping_mul(3).wrapping_add(k);
                }
            }
        }
        [sum]
    });
}

fn early_return(gpu: &Gpu) {
    gpu.map("early_return", &inputs::integers(), |x: Ints| {
        match (x.a % 3, x.b % 2) {
            (0, _) => [1, 0],
            (_, 1) => [2, 5],
            _ => [2, x.a],
        }
    });
}

fn switched(gpu: &Gpu) {
    // Those that return early write nothing; keep to the others.
    let run = |x: &Ints| {
        let mut r = x.a;
        for _ in 0..3 {
            r = match r % 12 {
                0 => r.wrapping_add(17),
                1 => r.wrapping_mul(3),
                2 => (r ^ 0x55).wrapping_sub(9),
                3 => r.wrapping_sub(9),
                4 => r / 2 + 1,
                5 => !r,
                6 => r << 3,
                7 => r.wrapping_mul(r),
                8 => r.count_ones().into(),
                9 => return None,
                10 => r.wrapping_add(x.b),
                _ => x.c,
            };
        }
        Some(r)
    };
    let inputs: Vec<_> = inputs::integers()
        .into_iter()
        .filter(|x| run(x).is_some())
        .collect();
    assert!(inputs.len() > 300);
    gpu.map("switched", &inputs, |x| [run(&x).expect("filtered")]);
}

fn calls(gpu: &Gpu) {
    gpu.map("calls", &inputs::integers(), |x: Ints| {
        let mix =
            x.a.wrapping_mul(31)
                .wrapping_add(x.b & 0xffff_ffff)
                .wrapping_add(x.c & 0xff)
                .wrapping_add(x.b % 1000);
        let divisor = x.b % 1000 + 1;
        let stored = if !x.c.is_multiple_of(3) && x.a.is_multiple_of(2) {
            x.a
        } else {
            1
        };
        [mix, x.a / divisor, x.a % divisor, stored]
    });
}

fn sorted(gpu: &Gpu) {
    for n in [1, 2, 31, 64, 97] {
        let mut data = inputs::below(500, n, n as u64);
        let buffer = gpu.upload(&data);
        gpu.kernel("sorted", 1, n.next_multiple_of(32) as u32)
            .shared(4 * n as u32)
            .buffer(&buffer)
            .value(n as i32)
            .run();
        data.sort_unstable();
        assert_eq!(gpu.read(&buffer), data);
    }
}

fn barrier_votes(gpu: &Gpu) {
    let data = inputs::below(1000, 100, 10);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(100));
    gpu.kernel("barrier_votes", 1, 100)
        .buffer(&given)
        .buffer(&out)
        .run();
    let count = data.iter().filter(|&v| v % 3 == 0).count() as u32;
    let odd = data.iter().all(|v| v % 2 == 1);
    assert_eq!(
        gpu.read(&out),
        [count | 1 << 12 | u32::from(odd) << 13 | 1 << 14; 100]
    );
}

fn named_barriers(gpu: &Gpu) {
    let data = inputs::below(1000, 128, 11);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(128));
    gpu.kernel("named_barriers", 1, 128)
        .buffer(&given)
        .buffer(&out)
        .run();
    let mine = |i: usize| data[i / 64 * 64 + 63 - i % 64];
    let want: Vec<u32> = (0..128).map(|i| mine(127 - i) * 2 + 1).collect();
    assert_eq!(gpu.read(&out), want);
}

fn arrive_and_wait(gpu: &Gpu) {
    let data = inputs::below(1000, 32, 12);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(32));
    gpu.kernel("arrive_and_wait", 1, 64)
        .buffer(&given)
        .buffer(&out)
        .run();
    let want: Vec<u32> = data.iter().rev().map(|v| v * 3).collect();
    assert_eq!(gpu.read(&out), want);
}

fn tiled_product(gpu: &Gpu) {
    for n in [1, 15, 16, 17, 40] {
        let values = |seed| -> Vec<f32> {
            inputs::below(17, n * n, seed)
                .iter()
                .map(|&v| v as f32 - 8.0)
                .collect()
        };
        let (a, b) = (values(13), values(14));
        let (da, db, dc) = (
            gpu.upload(&a),
            gpu.upload(&b),
            gpu.uninitialised::<f32>(n * n),
        );
        let blocks = n.div_ceil(16) as u32;
        gpu.kernel("tiled_product", (blocks, blocks), (16, 16))
            .buffer(&da)
            .buffer(&db)
            .buffer(&dc)
            .value(n as i32)
            .run();
        let want: Vec<f32> = (0..n * n)
            .map(|e| (0..n).map(|k| a[e / n * n + k] * b[k * n + e % n]).sum())
            .collect();
        assert_eq!(gpu.read(&dc), want, "n = {n}");
    }
}

fn meeting_again(gpu: &Gpu) {
    let data = inputs::below(100_000, 32, 15);
    let (given, out) = (gpu.upload(&data), gpu.uninitialised::<u32>(32));
    gpu.kernel("meeting_again", 1, 32)
        .buffer(&given)
        .buffer(&out)
        .run();
    let rounds = |mut v: u32| {
        let mut rounds = 0;
        while v > 10 {
            if v % 2 == 1 {
                v /= 3;
            } else {
                v /= 2;
                if v.is_multiple_of(5) {
                    break;
                }
            }
            rounds += 1;
        }
        rounds
    };
    let want: Vec<u32> = (0..32)
        .map(|i| (rounds(data[i ^ 7]) + 32) * 100 + rounds(data[i]))
        .collect();
    assert_eq!(gpu.read(&out), want);
}
