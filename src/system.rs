//! What the operating system tells of the machine and its processes: the one place that asks it.
//!
//! Linux is asked through `/proc`, and Unix for the room on a disk. Elsewhere every answer is `None`, unknown, which
//! reports leave out; it is never zero. Nothing that is computed depends on an answer.
//!
//! ```
//! use muso::system;
//! assert_eq!(system::peak_memory().is_some(), cfg!(target_os = "linux"));
//! assert_ne!(system::is_running(std::process::id()), Some(false));
//! ```

use std::path::Path;

/// Returns the most memory that this process has had resident, in bytes.
pub fn peak_memory() -> Option<u64> {
    kibibytes(&proc("self/status")?, "VmHWM:")
}

/// Returns the memory that can be used without swapping, in bytes.
pub fn available_memory() -> Option<u64> {
    kibibytes(&proc("meminfo")?, "MemAvailable:")
}

/// Returns the processor time of this process so far, of all its threads, in seconds.
pub fn processor_time() -> Option<f64> {
    processor_seconds(&proc("self/stat")?)
}

/// Returns the processor's own name. Processors of ARM have none there.
pub fn processor() -> Option<String> {
    let text = proc("cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_owned())
}

/// Returns whether there is a process with this id.
pub fn is_running(process: u32) -> Option<bool> {
    // Without itself a `/proc` that is there says nothing.
    proc("self/stat")?;
    Some(Path::new("/proc").join(process.to_string()).exists())
}

/// Returns the line by which a loaded NVIDIA driver introduces itself.
pub fn nvidia_driver() -> Option<String> {
    let text = proc("driver/nvidia/version")?;
    Some(text.lines().next()?.trim().to_owned())
}

/// Returns the bytes that a user may still write where `path` is.
#[cfg(all(unix, feature = "cli"))]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Returns the bytes that a user may still write where `path` is.
#[cfg(all(not(unix), feature = "cli"))]
pub fn free_bytes(_: &Path) -> Option<u64> {
    None
}

fn proc(name: &str) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    std::fs::read_to_string(Path::new("/proc").join(name)).ok()
}

/// The value of a line such as `VmHWM:   1234 kB`, in bytes.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// User and system time of a line of `/proc/PID/stat`.
fn processor_seconds(stat: &str) -> Option<f64> {
    /// Clock ticks per second of that file, on every Linux there is.
    const TICKS: f64 = 100.0;
    // The name, in brackets, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_or_unknown() {
        let text = "VmPeak:\t  9 kB\nVmHWM:\t  1234 kB\nVmRSS: x kB\n";
        assert_eq!(kibibytes(text, "VmHWM:"), Some(1234 * 1024));
        for key in ["VmRSS:", "VmSwap:"] {
            assert_eq!(kibibytes(text, key), None);
        }
        assert_eq!(kibibytes("VmHWM: 99999999999999999999 kB", "VmHWM:"), None);
        let stat = "12 (a) b (c) R 1 1 1 0 -1 4194304 1 2 3 4 250 50 0 0 20 0";
        assert_eq!(processor_seconds(stat), Some(3.0));
        for short in [
            "",
            "12 (a",
            "12 (a) R 1",
            "12 (a) R 1 1 1 0 -1 0 1 2 3 4 x 5",
        ] {
            assert_eq!(processor_seconds(short), None, "{short}");
        }
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
    fn linux_tells() {
        let mut held = vec![0_u8; 32 << 20];
        held.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let peak = peak_memory().expect("Linux tells");
        assert!(peak > held.len() as u64, "{peak}");
        assert!(available_memory().expect("Linux tells") > 1 << 20);
        assert_eq!(is_running(std::process::id()), Some(true));
        // Beyond the largest id that there can be.
        assert_eq!(is_running(u32::MAX), Some(false));
        let before = processor_time().expect("Linux tells");
        let clock = std::time::Instant::now();
        while clock.elapsed().as_millis() < 60 {
            std::hint::black_box(&mut held);
        }
        assert!(processor_time().expect("Linux tells") >= before);
    }
}
