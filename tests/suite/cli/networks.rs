//! `train`, `unlearn`, `evaluate` and `compare` from end to end, on the embedded images and a very narrow network.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Case, JSON, Run, one_line, tensor_names};
use crate::support::files;

fn train(case: &Case, folder: &str) -> Run {
    Run::new(case, "train")
        .set("--out", folder)
        .set("--width", 2)
        .set("--epochs", 1)
        .set("--batch", 100)
}

/// The files of a run's folder with their bytes.
fn folder(case: &Case, name: &str) -> Vec<(String, Vec<u8>)> {
    files(&case.path(name))
}

#[test]
fn train_unlearn_evaluate() {
    let case = Case::empty();
    let said = train(&case, "run").succeeds();
    assert!(
        said.starts_with("test accuracy ") && said.contains("run/model.safetensors"),
        "{said}"
    );
    let names = tensor_names(&case.path("run/model.safetensors"));
    assert!(names.iter().any(|name| name == "conv1.weight"), "{names:?}");

    let unlearn = Run::new(&case, "unlearn")
        .set("--run", "run")
        .set("--forget-class", "Sneaker")
        .set("--out", "new.safetensors")
        .set("--json", JSON);
    let said = unlearn
        .set("--method", "amnesiac")
        .set("--set", "recipe.epochs=1")
        .succeeds();
    assert!(
        said.contains("Amnesiac") && said.contains("without class “Sneaker”"),
        "{said}"
    );
    let report = case.json();
    assert_eq!(report["settings"]["recipe.epochs"], "1");
    assert_eq!(report["models"][0]["name"], "before");
    let before = report["models"][1]["ta"].as_f64().unwrap();

    // The same numbers from the file alone: what the network is stands in it.
    let evaluate = Run::new(&case, "evaluate")
        .set("--model", "new.safetensors")
        .set("--json", JSON);
    let forget = evaluate
        .set("--forget-class", "sneaker")
        .set("--reference", "run/model.safetensors");
    forget.succeeds();
    let report = case.json();
    assert_eq!(report["models"][1]["name"], "new.safetensors");
    assert_eq!(report["models"][1]["ta"].as_f64().unwrap(), before);
    assert!(report["models"][1]["avg_gap"].as_f64().unwrap() > 0.0);
}

#[test]
fn several_classes_are_forgotten_at_once() {
    let case = Case::empty();
    train(&case, "run").succeeds();
    case.write(
        "two.toml",
        b"forget = [{ classes = [\"sneaker\", \"8\"] }]\n[network]\nwidth = 2\n",
    );
    let unlearn = || {
        Run::new(&case, "unlearn")
            .set("--method", "amnesiac")
            .set("--set", "recipe.epochs=1")
            .set("--out", "new.safetensors")
            .set("--json", JSON)
    };
    let of_run = || unlearn().set("--run", "run");
    let mut outcomes = Vec::new();
    for run in [
        of_run()
            .set("--forget-class", "Sneaker")
            .flag("--forget-class=bag"),
        of_run().set("--forget", "class:sneaker,8"),
    ] {
        let said = run.succeeds();
        assert!(
            said.contains("over the 800 test rows, without classes “Sneaker” and “Bag”"),
            "{said}"
        );
        let report = case.json();
        assert_eq!(
            report["over"]["fa"],
            "over the 200 test rows of classes “Sneaker” and “Bag”, which are forgotten"
        );
        assert_eq!(
            report["over"]["mia"],
            "over the 400 forgotten training rows"
        );
        outcomes.push(fs::read(case.path("new.safetensors")).unwrap());
    }
    assert!(outcomes[0] == outcomes[1]);
    let said = unlearn()
        .set("--model", "run/model.safetensors")
        .set("--config", "two.toml")
        .succeeds();
    assert!(
        said.contains("without classes “Sneaker” and “Bag”"),
        "{said}"
    );
    let evaluate = Run::new(&case, "evaluate").set("--model", "new.safetensors");
    let said = evaluate.set("--forget", "class:7,8").succeeds();
    assert!(
        said.contains("without classes “Sneaker” and “Bag”"),
        "{said}"
    );
}

/// The words between tags of a page.
fn words(page: &str) -> Vec<&str> {
    let parts = page.split('<').filter_map(|part| part.split_once('>'));
    parts.map(|(_, text)| text.trim()).collect()
}

#[test]
fn a_page_shows_the_outcome_and_what_ran_when() {
    let case = Case::empty();
    train(&case, "run").set("--report", "train.html").succeeds();
    let page = fs::read_to_string(case.path("train.html")).unwrap();
    for lane in ["decode", "features", "train"] {
        assert!(words(&page).contains(&lane), "no {lane} in {page}");
    }
    for ahead in [0, 2] {
        let run = Run::new(&case, "unlearn")
            .set("--run", "run")
            .set("--method", "muso")
            .set("--forget-class", "Sneaker")
            .set("--set", "staleness=0")
            .set("--ahead", ahead)
            .set("--out", "new.safetensors")
            .set("--report", "report.html")
            .set("--trace", "trace.json");
        let output = run.output();
        let (said, summary) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(output.status.success(), "{summary}");
        assert!(
            summary.starts_with("lanes: decode ") && summary.contains("; bounded by "),
            "{summary}"
        );
        let page = fs::read_to_string(case.path("report.html")).unwrap();
        let all = words(&page);
        // The table of the terminal, word by word.
        for word in said.lines().take(3).flat_map(str::split_whitespace) {
            assert!(all.contains(&word), "no {word} in {page}");
        }
        let lanes = ["decode", "features", "gram", "solve", "labels", "train"];
        let picture = page.split("<svg").nth(1).unwrap().split("</svg>").next();
        let drawn = words(picture.unwrap());
        let drawn: Vec<&str> = drawn.into_iter().filter(|w| lanes.contains(w)).collect();
        assert_eq!(drawn, lanes, "--ahead {ahead}");
        assert_eq!(page.matches("<path d=\"M").count(), lanes.len());
        assert!(page.contains("longer than any other: it bounds the run."));
        assert!(page.contains("muso unlearn --run run --method muso"));
        assert!(all.contains(&"staleness") && !page.contains("http"));
        let trace: serde_json::Value =
            serde_json::from_slice(&fs::read(case.path("trace.json")).unwrap()).unwrap();
        let mut named: Vec<&str> = trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        named.sort_unstable();
        let mut expected = lanes;
        expected.sort_unstable();
        assert_eq!(named, expected, "--ahead {ahead}");
    }
    let same = Run::new(&case, "unlearn")
        .set("--run", "run")
        .set("--forget-class", "Sneaker")
        .set("--out", "new.safetensors")
        .set("--report", "new.safetensors");
    one_line(&same.output(), &["--report", "--out"]);
    // A run that is trained is not trained again.
    let before = folder(&case, "run");
    let said = Run::new(&case, "train").set("--resume", "run").succeeds();
    assert!(said.starts_with("test accuracy "), "{said}");
    assert!(folder(&case, "run") == before);
}

#[test]
fn one_seed_gives_one_result() {
    let case = Case::empty();
    for (name, threads, seed) in [("a", 1, 5), ("b", 1, 5), ("c", 2, 5), ("d", 1, 6)] {
        train(&case, name)
            .set("--threads", threads)
            .set("--seed", seed)
            .succeeds();
    }
    let of = |name: &str| folder(&case, name);
    assert!(of("a") == of("b"), "two runs with one seed differ");
    assert!(of("a") == of("c"), "the number of threads shows");
    let model = |name: &str| fs::read(case.path(&format!("{name}/model.safetensors"))).unwrap();
    assert!(model("a") != model("d"), "the seed does nothing");
}

#[test]
#[cfg(unix)]
fn interrupted_and_resumed_is_as_if_never_interrupted() {
    let case = Case::empty();
    let long = |name: &str| {
        train(&case, name)
            .set("--epochs", 6)
            .set("--batch", 20)
            .flag("--augment")
    };
    long("whole").succeeds();
    let mut child = long("parts").spawn();
    let snapshot = case.path("parts/session.safetensors");
    let start = Instant::now();
    while !snapshot.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no session after a minute"
        );
        sleep(Duration::from_millis(2));
    }
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(
        said,
        "muso: interrupted; the run so far is in parts, and --resume goes on with it\n"
    );
    assert!(case.path("parts/session.safetensors").exists());
    assert!(!case.path("parts/model.safetensors").exists());

    let again = one_line(&long("parts").output(), &["parts", "--resume"]);
    assert!(again.contains("already has a run"), "{again}");
    Run::new(&case, "train").set("--resume", "parts").succeeds();
    assert!(folder(&case, "whole") == folder(&case, "parts"));
}

#[test]
fn compare_shows_every_method() {
    let case = Case::empty();
    case.write(
        "few.toml",
        b"retrains = 1\nforget = [{ random = 0.1 }]\n[data]\nkind = \"fashion\"\nper-class = [20, 10]\n\
          [network]\narchitecture = \"small-cnn\"\nwidth = 2\n[train]\nepochs = 1\n",
    );
    let run = Run::new(&case, "compare")
        .set("--config", "few.toml")
        .set("--report", "report.html")
        .set("--json", JSON)
        .set("--methods", "fine-tune,muso,muso-s");
    let said = run.succeeds();
    for word in [
        "Retrain",
        "Pre-trained",
        "Fine-tune",
        "MUSO-S",
        "AvgGap",
        "report.html",
    ] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    let report = case.json();
    let rows = report["scenarios"][0]["rows"].as_array().unwrap();
    let methods: Vec<&str> = rows
        .iter()
        .map(|row| row["method"].as_str().unwrap())
        .collect();
    assert_eq!(
        methods,
        ["Retrain", "Pre-trained", "Fine-tune", "MUSO", "MUSO-S"]
    );
    // One seed: the gap of the means is that of the seed.
    let gaps = &rows[3]["mean"];
    assert!(gaps["avg_gap"].is_number() && gaps["seed_gap"].is_number());
    assert!((gaps["avg_gap"].as_f64().unwrap() - gaps["seed_gap"].as_f64().unwrap()).abs() < 1e-9);
    // The configuration in the outcome gives the outcome again.
    case.write("again.toml", report["config"].as_str().unwrap().as_bytes());
    let first = rows.clone();
    Run::new(&case, "compare")
        .set("--config", "again.toml")
        .set("--json", JSON)
        .set("--threads", 1)
        .succeeds();
    let second = case.json()["scenarios"][0]["rows"]
        .as_array()
        .unwrap()
        .clone();
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a["mean"], b["mean"], "{}", a["method"]);
    }
}

/// Arms of one method, each beside the same Retrain, with the vital signs of their projectors.
#[test]
fn a_method_may_have_several_arms() {
    let case = Case::empty();
    case.write(
        "arms.toml",
        b"retrains = 1\nforget = [{ random = 0.1 }, { classes = [\"sneaker\"] }]\n[data]\nkind = \"fashion\"\n\
          per-class = [20, 10]\n[network]\narchitecture = \"small-cnn\"\nwidth = 2\n[train]\nepochs = 1\n\
          [methods.fine-tune]\nrecipe = { epochs = 1 }\n\
          [[methods.muso]]\npreset = \"released-2025-02\"\n\
          [[methods.muso]]\npreset = \"released-2025-02\"\nname = \"exact projector\"\nprojector = \"exact\"\n\
          [[methods.muso]]\npreset = \"released-2025-02\"\nname = \"random labels\"\n\
          projector = \"random-labels\"\n",
    );
    let run = Run::new(&case, "compare")
        .set("--config", "arms.toml")
        .set("--report", "report.html")
        .set("--json", JSON);
    let said = run.succeeds();
    assert!(said.contains("label updates (full-class)"), "{said}");
    let report = case.json();
    let arms = [
        "MUSO (released 2025-02)",
        "MUSO: exact projector",
        "MUSO: random labels",
    ];
    for (scenario, epochs) in [(0, 2), (1, 5)] {
        let rows = report["scenarios"][scenario]["rows"].as_array().unwrap();
        let methods: Vec<&str> = rows[3..]
            .iter()
            .map(|row| row["method"].as_str().unwrap())
            .collect();
        assert_eq!(methods, arms);
        assert_eq!(rows[4]["settings"]["projector"], "\"exact\"");
        assert_eq!(rows[4]["settings"]["preset"], "\"released-2025-02\"");
        let updates = report["details"][scenario]["label_updates"]
            .as_array()
            .unwrap();
        assert_eq!(updates.len(), 3);
        for (method, name) in updates.iter().zip(arms) {
            assert_eq!(method["method"], name);
            // An update an epoch, and as many epochs as the recipe of the scenario has.
            let updates = method["updates"].as_array().unwrap();
            assert_eq!(updates.len(), epochs, "{name}");
            assert_eq!(updates[0].get("trace_ratio").is_some(), name != arms[2]);
        }
        let ratio = |k: usize| updates[k]["updates"][0]["trace_ratio"].as_f64().unwrap();
        assert!(
            ratio(0) > 1.01 && (0.0..=1.0).contains(&ratio(1)),
            "{} {}",
            ratio(0),
            ratio(1)
        );
        let warnings = report["details"][scenario]["warnings"].to_string();
        assert!(
            warnings.contains("MUSO (released 2025-02): tr(Π)/D"),
            "{warnings}"
        );
    }
    // The configuration in the outcome names the arms again.
    case.write("again.toml", report["config"].as_str().unwrap().as_bytes());
    Run::new(&case, "compare")
        .set("--config", "again.toml")
        .set("--json", JSON)
        .succeeds();
    let again = case.json();
    for scenario in 0..2 {
        for (a, b) in (report["scenarios"][scenario]["rows"]
            .as_array()
            .unwrap()
            .iter())
        .zip(again["scenarios"][scenario]["rows"].as_array().unwrap())
        {
            assert_eq!((&a["method"], &a["mean"]), (&b["method"], &b["mean"]));
        }
    }
}

/// The means of every row of every scenario of an outcome.
fn means(report: &serde_json::Value) -> Vec<(String, String, serde_json::Value)> {
    let mut out = Vec::new();
    for scenario in report["scenarios"].as_array().unwrap() {
        for row in scenario["rows"].as_array().unwrap() {
            let name = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            out.push((
                name(&scenario["name"]),
                name(&row["method"]),
                row["mean"].clone(),
            ));
        }
    }
    out
}

const FEW: &[u8] = b"seeds = [3, 4]\nforget = [{ random = 0.1 }]\nsnapshots = [0.5]\n[data]\nkind = \"fashion\"\n\
    per-class = [40, 10]\n[network]\narchitecture = \"small-cnn\"\nwidth = 2\n[train]\nepochs = 4\nbatch = 20\n\
    [methods.amnesiac]\n[methods.muso]\npreset = \"released-2024-10\"\n[methods.muso-s]\nsnapshot = 0.5\n";

#[test]
fn a_killed_comparison_goes_on_to_the_same_numbers() {
    let case = Case::empty();
    case.write("few.toml", FEW);
    let run = || {
        Run::new(&case, "compare")
            .set("--config", "few.toml")
            .set("--json", JSON)
    };
    run().succeeds();
    let whole = means(&case.json());
    let resumed = run().set("--resume", "jobs");
    let mut child = resumed.spawn();
    let (first, last) = (
        case.path("jobs/original-0.safetensors"),
        case.path("jobs/arm-0-1-2.json"),
    );
    let start = Instant::now();
    while !first.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no job after a minute"
        );
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!last.exists(), "it was done before it was killed");
    let kept = fs::metadata(&first).unwrap().modified().unwrap();
    resumed.succeeds();
    assert!(last.exists());
    assert_eq!(
        kept,
        fs::metadata(&first).unwrap().modified().unwrap(),
        "a job was done twice"
    );
    assert_eq!(means(&case.json()), whole);
    // All of it from the folder.
    let before = files(&case.path("jobs"));
    resumed.succeeds();
    assert_eq!(means(&case.json()), whole);
    one_line(
        &resumed.set("--epochs", 5).output(),
        &["jobs/config.toml", "epochs = 4", "epochs = 5", "--resume"],
    );
    assert!(files(&case.path("jobs")) == before, "something is lost");
    // Ctrl-C says how to go on.
    let mut child = run().set("--resume", "others").set("--epochs", 40).spawn();
    while !case.path("others/config.toml").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_millis(1));
    }
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("the run so far is in others, and --resume goes on with it"),
        "{said}"
    );
}

/// Ten classes of 32×32 images in the published binary layout, a few of each.
fn write_cifar10(case: &Case, of_each: usize) {
    fs::create_dir(case.path("cifar")).unwrap();
    let names = (1..=5).map(|k| format!("data_batch_{k}.bin"));
    for (k, name) in names.chain(["test_batch.bin".to_owned()]).enumerate() {
        let mut bytes = Vec::new();
        for i in 0..10 * of_each {
            let class = i % 10;
            bytes.push(class as u8);
            let pixel = |at: usize| ((at * (class + 3) + 31 * (i + 7 * k)) * 2_654_435_761) >> 7;
            bytes.extend((0..3072).map(|at| (pixel(at) % 200) as u8 + 5 * class as u8));
        }
        fs::write(case.path("cifar").join(name), bytes).unwrap();
    }
}

#[test]
fn the_command_that_a_table_prints_gives_it_again() {
    let case = Case::empty();
    write_cifar10(&case, 2);
    let run = Run::new(&case, "reproduce table3")
        .set("--data-path", "cifar")
        .set("--methods", "ssd,amnesiac")
        .set("--scenarios", "random (10%)")
        .set("--json", JSON)
        .set("--report", "table.html");
    let said = run.succeeds();
    assert!(
        said.contains("random (10%)") && !said.contains("random (1%)"),
        "{said}"
    );
    let first = case.json();
    let rows = first["scenarios"][0]["rows"].as_array().unwrap();
    let methods: Vec<&str> = rows
        .iter()
        .map(|row| row["method"].as_str().unwrap())
        .collect();
    assert_eq!(methods, ["Retrain", "Pre-trained", "Amnesiac", "SSD"]);
    // What is published stands beside it, AvgGap as it is printed.
    assert_eq!(rows[3]["paper"]["mean"]["avg_gap"], 4.64);
    let command = first["command"].as_str().unwrap();
    assert!(
        fs::read_to_string(case.path("table.html"))
            .unwrap()
            .contains("reproduce table3")
    );
    assert_eq!(
        command,
        "muso reproduce table3 --data-path cifar --methods ssd,amnesiac --scenarios 'random (10%)' --json outcome.json \
         --report table.html"
    );
    fs::remove_file(case.path(JSON)).unwrap();
    let program = env!("CARGO_BIN_EXE_muso");
    let typed = command.replacen("muso", program, 1);
    let again = Command::new("sh")
        .args(["-c", &typed])
        .current_dir(case.dir.path())
        .output()
        .unwrap();
    assert!(again.status.success(), "{again:?}");
    assert_eq!(means(&case.json()), means(&first));
}

#[test]
fn a_dry_run_lists_every_job_and_does_none() {
    let case = Case::empty();
    let dry = || {
        Run::new(&case, "reproduce table2")
            .set("--scale", "paper")
            .flag("--dry-run")
    };
    let said = dry().succeeds();
    // Five seeds: an original for each of two data sets, in eight scenarios two retrained models and every arm.
    let lines = said
        .lines()
        .filter(|line| line.contains(", seed ") || line.contains("original"));
    let arms = muso::methods::networks::METHODS.len() - 2 + 6;
    let jobs = 5 * (2 + 8 * (2 + arms));
    assert_eq!(lines.count(), jobs, "{said}");
    assert!(said.contains(&format!("all {jobs} jobs")), "{said}");
    assert!(
        said.contains("CIFAR-20: sub-class (sea), seed 4, MUSO: exact projector"),
        "{said}"
    );
    assert!(said.contains("rtx-4090") && said.contains("nothing was run"));
    // A training of ResNet-18 on 50,000 images for 100 epochs: 6 · 0.556e9 · 5e6 operations.
    let original = said
        .lines()
        .find(|line| line.contains("original, seed 0"))
        .unwrap();
    let flops: f64 = original.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(
        (flops / (6.0 * 555.8e6 * 5e6 / 1e12) - 1.0).abs() < 0.01,
        "{original}"
    );
    let few = dry()
        .set("--scenarios", "random")
        .set("--methods", "muso")
        .set("--seeds", 1);
    let said = few.set("--gpu", "A100").succeeds();
    assert!(
        said.contains("all 17 jobs") && said.contains("a100") || said.contains("A100"),
        "{said}"
    );
    one_line(
        &dry().set("--gpu", "abacus").output(),
        &["--gpu", "abacus", "a100"],
    );
    one_line(
        &dry().set("--scenarios", "half-class").output(),
        &["--scenarios", "half-class", "sub-class (sea)"],
    );
    assert!(case.snapshot().is_empty(), "something was written");
}

#[test]
fn every_method_has_as_many_settings_to_choose_from() {
    let case = Case::empty();
    let start = "retrains = 1\nseeds = [0]\nforget = [{ random = 0.1 }]\n[data]\nkind = \"fashion\"\n\
                 per-class = [20, 10]\n[network]\narchitecture = \"small-cnn\"\nwidth = 2\n[train]\nepochs = 1\n";
    let arm = |method: &str, name: &str, setting: &str| {
        format!("[[methods.{method}]]\nname = {name:?}\n{setting}\n")
    };
    let three = [
        arm("ssd", "a", "selection = 3.0"),
        arm("ssd", "b", "selection = 10.0"),
        arm(
            "fine-tune",
            "slow",
            "recipe = { epochs = 1, learning-rate = 1e-4 }",
        ),
    ];
    case.write(
        "uneven.toml",
        (start.to_owned() + &three.concat()).as_bytes(),
    );
    let fourth = arm(
        "fine-tune",
        "fast",
        "recipe = { epochs = 1, learning-rate = 1e-3 }",
    );
    case.write(
        "even.toml",
        (start.to_owned() + &three.concat() + &fourth).as_bytes(),
    );
    let run = |config: &str| {
        Run::new(&case, "compare")
            .set("--config", config)
            .set("--json", JSON)
            .set("--tune", 2)
    };
    one_line(
        &run("uneven.toml").output(),
        &["methods.ssd", "2 settings", "fine-tune has 1"],
    );
    run("even.toml").succeeds();
    let report = case.json();
    let rows = report["scenarios"][0]["rows"].as_array().unwrap();
    let methods: Vec<&str> = rows[2..]
        .iter()
        .map(|row| row["method"].as_str().unwrap())
        .collect();
    assert_eq!(methods, ["Fine-tune", "SSD"]);
    assert_eq!(report["seeds"], serde_json::json!([0]));
    let tuning = report["details"][0]["tuning"].as_array().unwrap();
    assert_eq!(tuning.len(), 2);
    for entry in tuning {
        assert!(entry["seed_gap"].is_f64());
        let chosen = entry["chosen"].as_str().unwrap();
        assert!(
            entry["grid"]
                .as_str()
                .unwrap()
                .split("; ")
                .any(|one| one == chosen),
            "{entry}"
        );
    }
    assert!(report["notes"][0].as_str().unwrap().contains("seeds 1, 2"));
}

#[test]
fn an_ablation_varies_one_setting_at_a_time() {
    let case = Case::empty();
    case.write(
        "few.toml",
        b"retrains = 1\nforget = [{ random = 0.1 }]\n[data]\nkind = \"fashion\"\nper-class = [20, 10]\n[network]\n\
          architecture = \"small-cnn\"\nwidth = 2\n[train]\nepochs = 1\n[methods.muso]\nrecipe = { epochs = 1 }\n",
    );
    let run = Run::new(&case, "compare")
        .set("--config", "few.toml")
        .set("--json", JSON)
        .set("--report", "report.html")
        .set("--ablate", "paper");
    run.succeeds();
    let report = case.json();
    let rows = &report["scenarios"][0]["rows"].as_array().unwrap()[2..];
    assert!((15..=17).contains(&rows.len()), "{}", rows.len());
    assert_eq!(rows[0]["method"], "MUSO (paper)");
    for row in rows {
        assert_eq!(row["settings"]["recipe.epochs"], "1");
        assert!(row["mean"]["avg_gap"].is_f64(), "{row}");
    }
    let page = fs::read_to_string(case.path("report.html")).unwrap();
    assert!(page.contains("Gap to the retrained model") && page.contains("MUSO: all rows"));
    one_line(
        &run.set("--ablate", "release").output(),
        &["release", "released-2025-02"],
    );
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let case = Case::empty();
    train(&case, "run").succeeds();
    let unlearn = || {
        Run::new(&case, "unlearn")
            .set("--run", "run")
            .set("--forget-class", "sneaker")
            .set("--out", "new.safetensors")
    };
    fs::create_dir_all(case.path("empty/train")).unwrap();
    fs::create_dir_all(case.path("empty/test")).unwrap();
    case.write("not-a-model.th", b"PK\x03\x04 this is no archive");
    case.write("short.safetensors", b"\x10\0\0\0\0\0\0\0{");
    case.write("ids.txt", b"1\n2\n99999\n");
    case.write("typo.toml", b"[train]\nlaerning-rate = 0.1\n");
    case.write(
        "twice.toml",
        b"[[methods.muso]]\nname = \"again\"\n[[methods.muso]]\nname = \"again\"\n",
    );
    case.write(
        "nameless.toml",
        b"[[methods.ssd]]\n[[methods.ssd]]\nselection = 3.0\n",
    );
    let before = case.snapshot();
    let refused: Vec<(Run, &[&str])> = vec![
        (
            unlearn().set("--forget-class", "snaeker"),
            &["snaeker", "Sneaker", "10 classes"],
        ),
        (unlearn().set("--forget-class", "10"), &["10"]),
        (
            unlearn().without("--forget-class"),
            &["--forget-class", "what to forget"],
        ),
        (
            unlearn().flag("--forget-class=7"),
            &["class `7`", "listed twice"],
        ),
        (
            unlearn().flag("--forget-class=bag").set("--part", "0.5"),
            &["--part", "one --forget-class"],
        ),
        (
            unlearn()
                .without("--forget-class")
                .set("--forget", "class:"),
            &["--forget class:", "a class is missing"],
        ),
        (
            unlearn()
                .without("--forget-class")
                .set("--forget", "random:2"),
            &["--forget random:2", "not a share"],
        ),
        (
            unlearn()
                .without("--forget-class")
                .set("--forget", "class:0,1,2,3,4,5,6,7,8,9"),
            &["all 2000 training rows"],
        ),
        (unlearn().set("--method", "magic"), &["magic", "muso-s"]),
        (
            unlearn()
                .set("--method", "muso")
                .set("--set", "preset=released-2023-01"),
            &["methods.muso", "released-2023-01", "released-2024-10"],
        ),
        (
            Run::new(&case, "compare").set("--config", "twice.toml"),
            &["methods.muso", "two arms", "MUSO: again"],
        ),
        (
            Run::new(&case, "compare").set("--config", "nameless.toml"),
            &["methods.ssd", "two arms", "`name`"],
        ),
        (
            unlearn()
                .without("--run")
                .set("--model", "run/model.safetensors")
                .set("--config", "twice.toml")
                .set("--method", "muso"),
            &["two arms"],
        ),
        (unlearn().set("--set", "recipe.epohcs=3"), &["epohcs"]),
        (
            unlearn().set("--set", "recipe.epochs"),
            &["--set", "KEY=VALUE"],
        ),
        (
            unlearn().set("--set", "snapshot=early"),
            &["methods.muso-s", "early"],
        ),
        (
            unlearn()
                .without("--forget-class")
                .set("--forget-random", "1.5"),
            &["1.5"],
        ),
        (
            unlearn()
                .without("--forget-class")
                .set("--forget", "ids.txt"),
            &["ids.txt", "99999"],
        ),
        (
            unlearn().set("--run", "nowhere"),
            &["nowhere", "config.toml"],
        ),
        (
            unlearn().set("--out", "no/such/place.safetensors"),
            &["no/such/place.safetensors"],
        ),
        (
            unlearn().without("--run").set("--model", "not-a-model.th"),
            &["not-a-model.th"],
        ),
        (
            unlearn()
                .without("--run")
                .set("--model", "short.safetensors"),
            &["short.safetensors"],
        ),
        (
            unlearn()
                .without("--run")
                .set("--model", "run/model.safetensors")
                .set("--arch", "resnet20"),
            &[
                "run/model.safetensors",
                "conv1.weight",
                "[16, 1, 3, 3]",
                "[2, 1, 3, 3]",
            ],
        ),
        (train(&case, "other").set("--data", "cifar11"), &["cifar11"]),
        (
            train(&case, "other").set("--data", "cifar10"),
            &["cifar10", "folder"],
        ),
        (
            train(&case, "other")
                .set("--data", "folder")
                .set("--data-path", "empty"),
            &["empty"],
        ),
        (train(&case, "other").set("--lr", "-1"), &["-1"]),
        (train(&case, "other").set("--batch", 0), &["batch"]),
        (
            train(&case, "other").set("--config", "typo.toml"),
            &["typo.toml", "line 2", "laerning-rate"],
        ),
        (
            train(&case, "other").set("--arch", "alexnet"),
            &["alexnet", "resnet18"],
        ),
        (train(&case, "run"), &["run", "--resume"]),
        (Run::new(&case, "train").set("--resume", "run2"), &["run2"]),
        (
            Run::new(&case, "evaluate").set("--model", "none.th"),
            &["none.th"],
        ),
        (
            Run::new(&case, "compare").set("--methods", "muso,magic"),
            &["magic"],
        ),
        (Run::new(&case, "reproduce table2"), &["--data-path"]),
    ];
    for (run, words) in refused {
        one_line(&run.output(), words);
    }
    assert!(case.snapshot() == before, "something was written");
}

/// A file that cannot grow: the run ends with one line, and no half of a file stays.
#[test]
#[cfg(unix)]
fn a_full_disk_is_said_and_leaves_no_half_files() {
    let case = Case::empty();
    // Blocks of 512 bytes in sh: enough for the configuration, not for a network.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .current_dir(case.dir.path())
        .args(["-c", script, env!("CARGO_BIN_EXE_muso")])
        .args(["train", "--width", "8", "--epochs", "1", "--out", "run"])
        .output()
        .unwrap();
    one_line(&output, &["run/initial.safetensors", "cannot write"]);
    assert!(case.snapshot().is_empty(), "something of the run is left");
}

#[test]
fn help_says_of_a_method_what_its_entry_says() {
    let case = Case::empty();
    let said = Run::new(&case, "unlearn --help").succeeds();
    // Lines are wrapped to the terminal.
    let said: Vec<&str> = said.split_whitespace().collect();
    let wanted =
        muso::methods::networks::METHODS.map(|entry| format!("{} {}", entry.key, entry.about));
    let wanted = format!("Methods: {} Settings of each", wanted.join(" "));
    assert!(said.join(" ").contains(&wanted), "{said:?}");
}
