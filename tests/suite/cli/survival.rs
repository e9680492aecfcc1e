//! What others do to a run: change its input, or kill it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    Case, FEATURES, HEAD, IDS, JSON, LABELS_OUT, OUT, OUTPUTS, head_tensors, large_features,
    one_line, tensor_file,
};
use crate::support::gaussian;

fn large_case(rows: usize, cols: usize, classes: usize) -> Case {
    let case = Case::empty();
    case.write(FEATURES, &large_features(rows, cols, classes));
    let head = head_tensors(&gaussian(cols + 1, classes, 20), true, "");
    case.write(HEAD, &tensor_file(&head));
    for name in OUTPUTS {
        case.write(name, format!("what was in {name} before").as_bytes());
    }
    case
}

/// Whether the process has the file open, under this name or removed from under it.
#[cfg(target_os = "linux")]
fn has_open(child: &Child, path: &Path) -> bool {
    let path = fs::canonicalize(path.parent().unwrap())
        .unwrap()
        .join(path.file_name().unwrap());
    let Ok(handles) = fs::read_dir(format!("/proc/{}/fd", child.id())) else {
        return false;
    };
    handles
        .flatten()
        .filter_map(|handle| fs::read_link(handle.path()).ok())
        .any(|open| open.to_string_lossy().trim_end_matches(" (deleted)") == path.to_string_lossy())
}

#[cfg(not(target_os = "linux"))]
fn has_open(_: &Child, _: &Path) -> bool {
    unreachable!("the tests that ask are ignored here")
}

/// Starts a run, changes its feature file while the run has it open, and expects to be told.
///
/// The run keeps the file open from its first look at it to its last, so a file that is open both before and after the
/// change was changed under the run. Should the run be done sooner than the change, it is repeated with a larger file.
fn changes(how: &str, change: impl Fn(&Path)) {
    let mut rows = 30_000;
    for _ in 0..4 {
        let case = large_case(rows, 256, 4);
        let run = case
            .head()
            .set("--objective", "ridge")
            .set("--ridge", "1")
            .set("--forget", "class:1")
            .set("--threads", "1")
            .flag("--verify");
        let outputs = || OUTPUTS.map(|name| fs::read(case.path(name)).unwrap());
        let before = outputs();
        let path = case.path(FEATURES);
        let mut child = run.spawn();
        while !has_open(&child, &path) && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(50));
        let open_before = has_open(&child, &path);
        change(&path);
        let open_after = has_open(&child, &path);
        let output = child.wait_with_output().unwrap();
        if !(open_before && open_after) {
            rows *= 2;
            continue;
        }
        one_line(&output, &[FEATURES, "changed while it was being read", how]);
        assert!(outputs() == before, "an output was touched");
        assert_eq!(case.temporaries(), [""; 0]);
        return;
    }
    panic!("no run was slow enough to change its file");
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn a_file_that_grows() {
    changes("bytes", |path| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"more").unwrap();
    });
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn a_file_that_shrinks() {
    changes("bytes", |path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(100_000).unwrap();
    });
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn a_file_that_is_replaced() {
    changes("replaced by another file", |path| {
        let other = path.with_file_name("other");
        fs::write(&other, b"quite another file").unwrap();
        fs::rename(other, path).unwrap();
    });
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn a_file_that_is_removed() {
    changes("removed", |path| fs::remove_file(path).unwrap());
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn a_file_that_is_written_to() {
    changes("written to", |path| {
        use std::os::unix::fs::FileExt;
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let end = file.metadata().unwrap().len();
        file.write_all_at(&[0; 8], end - 8).unwrap();
    });
}

/// Killed at forty moments spread over the whole run, a run leaves each output old or new, never anything between.
#[test]
fn killed_at_any_moment_outputs_are_whole() {
    const KILLS: u32 = 40;
    // Half of the rows are forgotten, each with 100 labels of 8 bytes: 32 MB.
    let (rows, classes) = (80_000, 100);
    let case = large_case(rows, 8, classes);
    let ids: String = (0..rows).step_by(2).map(|i| format!("{i}\n")).collect();
    case.write(IDS, ids.as_bytes());
    let run = case.ridge().without("--report").set("--threads", "1");

    let fresh = || {
        for name in OUTPUTS {
            case.write(name, format!("what was in {name} before").as_bytes());
        }
    };
    // How long a run takes depends on the disk and on what else runs; this is corrected as the kills go on.
    let started = Instant::now();
    run.succeeds();
    let mut whole_run = started.elapsed();
    let read = |name: &str| fs::read(case.path(name)).unwrap();
    let new = [OUT, LABELS_OUT].map(read);
    assert!(new[1].len() > 30_000_000);
    fresh();
    let old = [OUT, LABELS_OUT].map(read);
    let old_json = read(JSON);

    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let (mut alive, mut interrupted, mut seen_old, mut seen_new) = (0, 0, 0, 0);
    for kill in 0..KILLS {
        // Each in its own fortieth of the run, in mixed order.
        let part = kill * 17 % KILLS;
        let share = (f64::from(part) + rng.random_range(0.0..1.0)) / f64::from(KILLS);
        let mut child = run.spawn();
        sleep(whole_run.mul_f64(share));
        if child.try_wait().unwrap().is_none() {
            alive += 1;
            whole_run = whole_run.mul_f64(if share > 0.8 { 1.1 } else { 1.0 });
        } else {
            whole_run = whole_run.mul_f64(0.9);
        }
        // Fails only for a process that has ended.
        let _ = child.kill();
        child.wait().unwrap();
        interrupted += u32::from(!case.temporaries().is_empty());
        for (i, name) in [OUT, LABELS_OUT].into_iter().enumerate() {
            let found = read(name);
            let (is_old, is_new) = (found == old[i], found == new[i]);
            assert!(
                is_old || is_new,
                "{name} is neither, after {share} of the run"
            );
            seen_old += u32::from(is_old);
            seen_new += u32::from(is_new);
        }
        let json = read(JSON);
        if json != old_json {
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(value["kind"], "head");
        }
        // Back to the old files when a run got to its end, so that the next kill can tell.
        if read(OUT) != old[0] || read(LABELS_OUT) != old[1] || json != old_json {
            fresh();
        }
    }
    assert!(alive >= KILLS / 4, "{alive} kills hit a running process");
    assert!(
        interrupted > 0,
        "no kill left a half-written temporary file"
    );
    assert!(seen_old > 0, "no kill left the old files");
    println!(
        "{whole_run:?}: {alive} alive, {interrupted} while writing, {seen_old} old and {seen_new} new files"
    );

    run.succeeds();
    for (i, name) in [OUT, LABELS_OUT].into_iter().enumerate() {
        assert!(read(name) == new[i], "{name} differs between whole runs");
        seen_new += 1;
    }
    assert!(seen_new > 0);
    assert_eq!(case.temporaries(), [""; 0], "left by killed runs");
}

/// A request to stop is not a fault of the input: code 130, one line, nothing written.
#[cfg(unix)]
#[test]
fn interrupted_runs_say_so() {
    let case = large_case(30_000, 256, 4);
    let run = case
        .ridge()
        .set("--forget", "class:1")
        .set("--threads", "1");
    let before = case.snapshot();
    let mut child = run.flag("--verify").spawn();
    // The last output that is opened, after which the handler is set.
    let opened = |name: &String| name.contains(JSON);
    while !case.temporaries().iter().any(opened) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_millis(2));
    }
    sleep(Duration::from_millis(50));
    let sent = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(said, "muso: interrupted; nothing was written\n");
    assert!(case.snapshot() == before);
}
