//! A bar on standard error for runs that a person waits for, and a clean stop on Ctrl-C.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use muso::pipeline::Progress;

static STOP: AtomicBool = AtomicBool::new(false);

/// Returns whether the user has asked to stop.
pub(super) fn is_stopping() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Shows a bar when standard error is a terminal; always passes on a request to stop.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    phase: String,
}

impl Bar {
    pub(super) fn new() -> Self {
        static HANDLER: OnceLock<()> = OnceLock::new();
        HANDLER.get_or_init(|| {
            // Without a handler Ctrl-C still ends the program; outputs are safe either way.
            let _ = ctrlc::set_handler(|| {
                if STOP.swap(true, Ordering::SeqCst) {
                    std::process::exit(130);
                }
            });
        });
        Self {
            bar: None,
            phase: String::new(),
        }
    }
}

/// Returns whether the units of a phase are images.
fn counts_images(phase: &str) -> bool {
    matches!(
        phase,
        "training" | "retraining" | "unlearning" | "extracting features"
    )
}

fn images_a_second(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // A bar that cannot be written to is no reason to stop.
    let _ = write!(out, "{:.0} img/s", state.per_sec());
}

impl Progress for Bar {
    fn at(&mut self, phase: &str, done: u64, total: u64) -> bool {
        if self.phase != phase {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            phase.clone_into(&mut self.phase);
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let rate = if counts_images(phase) { "{rate}, " } else { "" };
            let style = format!(
                "{{msg:12}} {{wide_bar}} {{percent:>3}} %  {rate}{{elapsed}} gone, {{eta}} left"
            );
            if let Ok(style) = ProgressStyle::with_template(&style) {
                bar.set_style(style.with_key("rate", images_a_second));
            }
            bar.set_message(phase.to_owned());
            bar
        });
        bar.set_length(total);
        bar.set_position(done);
        !is_stopping()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
