//! `muso bench` on the processor.

use super::{Case, JSON, REPORT, Run, one_line};
use serde_json::Value;

fn quick(case: &Case, operations: &str) -> Run {
    Run::new(case, &format!("bench {operations}"))
        .flag("--quick")
        .set("--threads", 1)
}

#[test]
fn a_quick_run_without_peers_gives_times_and_shares() {
    let case = Case::empty();
    let run = quick(&case, "gram").flag("--no-peers").set("--json", JSON);
    let said = run
        .set("--report", REPORT)
        .set("--markdown", "tables.md")
        .succeeds();
    assert!(said.contains("of peak") && said.contains("quick"), "{said}");
    let json = case.json();
    assert_eq!(json["kind"], "bench");
    let measured = json["measurements"].as_array().unwrap();
    assert_eq!(measured.len(), 4, "{json}");
    for m in measured {
        assert!(m["seconds"].as_f64().unwrap() > 0.0);
        assert!(m["share_of_limit"].as_f64().unwrap() > 0.0);
        assert_eq!(m["spread"]["rounds"], 3);
        assert!(m.get("peers").is_none());
    }
    let page = std::fs::read_to_string(case.path(REPORT)).unwrap();
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    let tables = std::fs::read_to_string(case.path("tables.md")).unwrap();
    assert!(tables.contains("| ours |"), "{tables}");
}

#[test]
fn a_python_that_is_not_there_is_absent_and_no_failure() {
    let case = Case::empty();
    let run = quick(&case, "cholesky").set("--json", JSON);
    let said = run.set("--python", "no-such-python").succeeds();
    for name in ["numpy", "scipy", "torch"] {
        assert!(said.contains(&format!("{name}: absent")), "{said}");
    }
    assert!(said.contains("no-such-python could not be started"));
    // The one that needs no Python is there, and agrees.
    for m in case.json()["measurements"].as_array().unwrap() {
        let peers = m["peers"].as_array().unwrap();
        assert_eq!((peers.len(), &peers[0]["agrees"]), (1, &true.into()), "{m}");
    }
    let head = quick(&case, "head").set("--rounds", 1);
    let said = head
        .set("--rows", 2000)
        .set("--python", "no-such-python")
        .succeeds();
    assert!(
        said.contains("numpy: absent") && said.contains("MiB"),
        "{said}"
    );
}

#[test]
fn heads_are_held_against_limits() {
    let case = Case::empty();
    let run = quick(&case, "head").flag("--no-peers").set("--rounds", 1);
    let said = run.set("--rows", 3000).set("--json", JSON).succeeds();
    let json = case.json();
    let checks = json["checks"].as_array().unwrap();
    // Exact sums at three widths, on a recorded grid, and with rows beyond it.
    assert_eq!(checks.len(), 5 + 6, "{json}");
    for (check, piece) in checks.iter().zip([
        "300 rows: ",
        "times the rows",
        "muso head: peak memory",
        "muso gram: peak memory",
        "4 shards merged",
        "exact, 20 bits, given grid: peak memory",
        "exact, 22 bits, given grid: peak memory",
        "exact, 27 bits, given grid: peak memory",
        "exact, 22 bits, recorded grid: peak memory",
        "1 % beyond it: peak memory",
        "50 % beyond it: peak memory",
    ]) {
        let text = check["text"].as_str().unwrap();
        assert!(text.contains(piece) && check["met"] == true, "{check}");
        assert!(said.contains(&format!("ok: {text}")), "{said}");
    }
    let measured = json["measurements"].as_array().unwrap();
    let named = |m: &Value| format!("{} {}", m["operation"], m["shape"]);
    let names: Vec<String> = measured.iter().map(named).collect();
    for (name, piece) in names.iter().zip([
        "\"head\" \"N = 3000,",
        "\"muso gram\" \"N = 3000,",
        "\"head\" \"N = 300,",
        "\"muso gram\" \"N = 300,",
    ]) {
        assert!(name.starts_with(piece), "{names:?}");
    }
}

#[test]
fn a_baseline_is_kept_and_a_fall_is_caught() {
    let case = Case::empty();
    let run = quick(&case, "leverage").flag("--no-peers");
    run.clone().set("--save", "then.json").succeeds();

    // A thousand times the share, without scatter: no load of the machine explains that away.
    let text = std::fs::read(case.path("then.json")).unwrap();
    let mut then: Value = serde_json::from_slice(&text).unwrap();
    let entry = &mut then["measurements"][0];
    let share = 1e3 * entry["share_of_limit"].as_f64().unwrap();
    entry["share_of_limit"] = share.into();
    for quartile in ["lower", "upper"] {
        entry["share_spread"][quartile] = share.into();
    }
    case.write("then.json", then.to_string().as_bytes());
    let output = run.clone().set("--compare", "then.json").output();
    let (said, complaint) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(said.contains("SLOWER"), "{said}");
    assert!(complaint.contains("slower than the baseline: leverage"));

    // Over a thousandth of the share there is a gain.
    then["measurements"][0]["share_of_limit"] = (share / 1e6).into();
    case.write("then.json", then.to_string().as_bytes());
    let said = run.clone().set("--compare", "then.json").succeeds();
    assert!(said.contains("against the baseline"), "{said}");

    // Another number of threads is another machine.
    let other = run.set("--threads", 2).set("--compare", "then.json");
    one_line(&other.output(), &["then.json", "1 thread", "2 threads"]);
}

#[test]
fn what_cannot_be_measured_is_refused_at_once() {
    let case = Case::empty();
    case.write("bad.json", b"{\"kind\": \"head\"}");
    let run = quick(&case, "gram");
    let compared = |path: &str| run.clone().set("--compare", path).output();
    one_line(&compared("bad.json"), &["bad.json", "muso bench --save"]);
    one_line(&compared("none.json"), &["none.json", "read"]);
    one_line(&run.clone().set("--rounds", 0).output(), &["--rounds"]);
    one_line(&quick(&case, "speed").output(), &["speed"]);
    one_line(
        &quick(&case, "scaling").set("--largest", 10).output(),
        &["--largest", "10000"],
    );
    one_line(
        &quick(&case, "head").set("--rows", 3).output(),
        &["--rows", "1024"],
    );
    assert_eq!(case.temporaries(), [""; 0]);
}

#[test]
fn scaling_shows_how_time_grows() {
    let case = Case::empty();
    let run = quick(&case, "scaling").set("--largest", 20_000);
    let said = run.set("--json", JSON).set("--report", REPORT).succeeds();
    assert!(said.contains("seconds grow as N^"), "{said}");
    let scaling = &case.json()["scaling"];
    assert_eq!(scaling["over_rows"][1]["size"], 20_000);
    assert!(scaling["threads"]["speedup"]["median"].as_f64().unwrap() > 0.0);
    let page = std::fs::read_to_string(case.path(REPORT)).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
}
