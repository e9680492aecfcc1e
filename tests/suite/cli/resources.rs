//! What the program costs and what it says of itself.

use super::{Case, FEATURES, HEAD, IDS, JSON, Run, head_tensors, large_features, tensor_file};
use crate::support::gaussian;

const MIB: u64 = 1 << 20;
const WIDTH: usize = 64;

/// The most memory that runs over so many rows had: forgetting three rows, a tenth of them all, and summing.
fn peaks(rows: usize) -> [u64; 3] {
    let case = Case::empty();
    case.write(FEATURES, &large_features(rows, WIDTH, 10));
    let head = head_tensors(&gaussian(WIDTH + 1, 10, 30), true, "");
    case.write(HEAD, &tensor_file(&head));
    case.write(IDS, b"3\n14\n15\n");
    let peak = |run: Run| {
        run.set("--threads", "2").set("--json", JSON).succeeds();
        case.json()["peak_memory_bytes"].as_u64().unwrap()
    };
    let head = |forget: &str| case.ridge().set("--forget", forget).flag("--verify");
    let gram = Run::new(&case, &format!("gram {FEATURES}"))
        .set("--head", HEAD)
        .set("--out", "sums");
    [peak(head(IDS)), peak(head("class:3")), peak(gram)]
}

/// Both files are larger than all buffers together, so that these are in use in both runs. How many of them are at a
/// time depends on whether reading or reckoning is ahead, hence the margin; the larger file has 110 MiB more.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the system does not tell")]
fn memory_does_not_grow_with_rows() {
    let (fewer, more) = (peaks(150_000), peaks(600_000));
    println!("{fewer:?} {more:?}");
    for (fewer, more) in fewer.into_iter().zip(more) {
        assert!(fewer.abs_diff(more) < 24 * MIB, "{fewer} {more}");
        assert!(fewer.max(more) < 128 * MIB, "{fewer} {more}");
    }
}

#[test]
fn doctor_tells_what_there_is() {
    let case = Case::empty();
    let run = Run::new(&case, "doctor").set("--json", JSON);
    let said = run.set("--threads", "2").succeeds();
    let version = env!("CARGO_PKG_VERSION");
    for word in [
        version,
        "processor",
        "2 worker threads",
        "cuda",
        "not available",
        "gram",
    ] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    let json = case.json();
    assert_eq!(json["kind"], "doctor");
    assert_eq!(json["version"], version);
    assert_eq!(json["threads"], 2);
    let exact = json["devices"][0]["exact"].as_array().unwrap();
    let widths: Vec<u64> = exact.iter().map(|e| e["bits"].as_u64().unwrap()).collect();
    assert_eq!(widths, muso::engine::exact::BITS.map(u64::from));
    for width in exact {
        assert!(said.contains(width["units"].as_str().unwrap()), "{width}");
    }
    let devices = json["devices"].as_array().unwrap();
    assert_eq!(devices[0]["name"], "cpu");
    assert_eq!(devices[0]["available"], true);
    assert_eq!(devices[1]["name"], "cuda");
    assert_eq!(devices[1]["available"], false);
    let why = devices[1]["why"].as_str().unwrap();
    assert!(!why.is_empty() && said.contains(why), "{why}");

    // The doctor reports on a missing device where the others refuse it, and writes nothing unasked.
    let case = Case::empty();
    let run = Run::new(&case, "doctor").set("--device", "cuda");
    assert!(run.succeeds().contains(why));
    assert!(case.snapshot().is_empty());
}

#[test]
fn help_and_version() {
    let case = Case::empty();
    let version = Run::new(&case, "--version").succeeds();
    let name = format!("muso {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(Run::new(&case, "-V").succeeds(), name);
    // What the licences of the images inside ask for goes with the program.
    let credits = version.strip_prefix(&name).unwrap();
    for words in [
        "LeCun",
        "CC BY-SA 3.0",
        "/by-sa/3.0/",
        "selection",
        "Zalando",
    ] {
        assert!(credits.contains(words), "{words}: {credits}");
    }
    for (command, words) in [
        (
            "--help",
            &[
                "demo",
                "reproduce",
                "head",
                "doctor",
                "Examples:",
                "muso head --features",
            ][..],
        ),
        (
            "head --help",
            &["--features", "--verify", "Examples:", "class:3", "--init"],
        ),
        (
            "demo --help",
            &["--seeds", "--report", "--json", "--threads"],
        ),
        ("reproduce --help", &["table1", "--seeds"]),
        (
            "gram --help",
            &["FEATURES", "--shards", "--rows", "Examples:", "--json"],
        ),
        ("merge --help", &["SHARD", "--out", "Example:"]),
        ("doctor --help", &["--json"]),
        ("help head", &["Examples:"]),
    ] {
        let said = Run::new(&case, command).succeeds();
        for word in words {
            assert!(said.contains(word), "no {word:?} in muso {command}: {said}");
        }
    }
    assert!(case.snapshot().is_empty());

    // Without a command: the help, as an error.
    let output = Run::new(&case, "").output();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("Usage: muso")
    );
}
