//! Settings: from the environment at first use, from `vgpuConfigure` later.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;

use crate::{device::Description, stream::Tolerated};

/// The version that `cuDriverGetVersion` reports: 13.0.
const DRIVER_VERSION: i32 = 13_000;

/// All settings. Unset ones keep their value when a new set is applied.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    /// Description by short name.
    pub(super) device: Option<String>,
    /// Bytes of device memory, when less than the description has.
    pub(super) memory: Option<u64>,
    /// Devices: 1, or 0 to have none.
    pub(super) devices: Option<u32>,
    /// What `cuDriverGetVersion` reports.
    pub(super) driver_version: Option<i32>,
    /// Which allocation of device memory fails, from 1.
    pub(super) fail_allocation: Option<u64>,
    /// Which allocation of page-locked memory fails, from 1.
    pub(super) fail_host_allocation: Option<u64>,
    /// Kernel whose launch is refused.
    pub(super) fail_launch: Option<String>,
    /// Kernel that stops the device when it runs.
    pub(super) fault_kernel: Option<String>,
    /// Synchronising calls fail once for new findings.
    pub(super) strict: bool,
    /// What is not given back when a context goes is a finding.
    pub(super) leaks: bool,
    /// Defects in kernels of somebody else that are only counted.
    pub(super) tolerate: Vec<Tolerated>,
    /// Waits for events that are left out, as the report's `waits` names them.
    pub(super) ignore_waits: Option<String>,
    /// Registers of a thread by kernel, instead of the estimate.
    pub(super) registers: BTreeMap<String, u32>,
    /// Output of `ptxas -v` to take registers from.
    pub(super) ptxas: Option<PathBuf>,
    /// Where the report goes at the end of the process.
    pub(super) report: Option<PathBuf>,
    /// Where the trace goes at the end of the process.
    pub(super) trace: Option<PathBuf>,
}

impl Config {
    /// `VGPU_CONFIG` with all settings as JSON, then one variable for each of the usual ones.
    pub(super) fn from_environment() -> Self {
        let mut config = Self::default();
        if let Ok(text) = env::var("VGPU_CONFIG")
            && let Err(error) = config.apply(&text)
        {
            eprintln!("virtual GPU: VGPU_CONFIG: {error}");
        }
        let text = |name: &str| env::var(name).ok().filter(|v| !v.is_empty());
        let number = |name: &str| text(name).and_then(|v| v.parse::<u64>().ok());
        let flag = |name: &str| text(name).map(|v| v != "0");
        config.device = text("VGPU_DEVICE").or(config.device);
        config.memory = number("VGPU_MEMORY").or(config.memory);
        config.devices = number("VGPU_DEVICES").map(|n| n as u32).or(config.devices);
        config.driver_version = number("VGPU_DRIVER_VERSION")
            .map(|n| n as i32)
            .or(config.driver_version);
        config.fail_allocation = number("VGPU_FAIL_ALLOCATION").or(config.fail_allocation);
        config.fail_launch = text("VGPU_FAIL_LAUNCH").or(config.fail_launch);
        config.fault_kernel = text("VGPU_FAULT_KERNEL").or(config.fault_kernel);
        config.strict = flag("VGPU_STRICT").unwrap_or(config.strict);
        config.leaks = flag("VGPU_LEAKS").unwrap_or(config.leaks);
        config.ptxas = text("VGPU_PTXAS").map(PathBuf::from).or(config.ptxas);
        config.report = text("VGPU_REPORT").map(PathBuf::from).or(config.report);
        config.trace = text("VGPU_TRACE").map(PathBuf::from).or(config.trace);
        if let Some(key) = config
            .device
            .as_deref()
            .filter(|key| Description::find(key).is_none())
        {
            let known: Vec<&str> = Description::all().iter().map(|d| d.key.as_str()).collect();
            eprintln!(
                "virtual GPU: no device `{key}`; there are {}; using {}",
                known.join(", "),
                known[0]
            );
        }
        config.read_ptxas();
        config
    }

    /// Applies settings given as a JSON object; unset ones keep their value.
    pub(super) fn apply(&mut self, text: &str) -> Result<(), String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let set = |key: &str| value.get(key).is_some();
        let new: Self = serde_json::from_value(value.clone()).map_err(|e| e.to_string())?;
        if let Some(key) = new
            .device
            .as_deref()
            .filter(|key| Description::find(key).is_none())
        {
            return Err(format!("no device `{key}`"));
        }
        macro_rules! take {
            ($($field:ident),*) => { $(if set(stringify!($field)) { self.$field = new.$field; })* };
        }
        take!(
            device,
            memory,
            devices,
            driver_version,
            fail_allocation,
            fail_host_allocation,
            fail_launch,
            fault_kernel,
            strict,
            leaks,
            tolerate,
            ignore_waits,
            ptxas,
            report,
            trace
        );
        self.registers.extend(new.registers);
        self.read_ptxas();
        Ok(())
    }

    fn read_ptxas(&mut self) {
        let Some(path) = self.ptxas.take() else {
            return;
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => self.registers.extend(ptxas_registers(&text)),
            Err(error) => eprintln!("virtual GPU: {}: {error}", Path::display(&path)),
        }
    }

    /// The description chosen.
    pub(super) fn device(&self) -> Arc<Description> {
        let chosen = self.device.as_deref().and_then(Description::find);
        chosen.unwrap_or_else(|| Description::all()[0].clone())
    }

    /// Bytes of device memory.
    pub(super) fn capacity(&self) -> u64 {
        self.memory.unwrap_or(self.device().memory_bytes)
    }

    /// Whether there is a device at all.
    pub(super) fn has_device(&self) -> bool {
        self.devices != Some(0)
    }

    /// The version of the driver.
    pub(super) fn version(&self) -> i32 {
        self.driver_version.unwrap_or(DRIVER_VERSION)
    }
}

/// Registers by kernel from the output of `ptxas -v`; the most, where a kernel was compiled for several devices.
fn ptxas_registers(text: &str) -> BTreeMap<String, u32> {
    let mut registers = BTreeMap::new();
    let mut kernel: Option<&str> = None;
    for line in text.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            kernel = rest.split('\'').next();
        } else if let (Some(name), Some(rest)) = (kernel, line.split("Used ").nth(1)) {
            let used = rest.split(' ').next().and_then(|n| n.parse::<u32>().ok());
            if let Some(used) = used {
                let most = registers.entry(name.to_owned()).or_insert(0);
                *most = used.max(*most);
            }
        }
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_registers_out_of_ptxas() {
        let text = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'gram_f32' for 'sm_80'\n\
            ptxas info    : Function properties for gram_f32\n    0 bytes stack frame, 0 bytes spill stores\n\
            ptxas info    : Used 128 registers, used 1 barriers, 400 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'gram_f32' for 'sm_90'\n\
            ptxas info    : Used 96 registers, 400 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'copy' for 'sm_90'\n\
            ptxas info    : Used 10 registers\n";
        let registers = ptxas_registers(text);
        assert_eq!(
            registers,
            BTreeMap::from([("copy".into(), 10), ("gram_f32".into(), 128)])
        );
    }

    #[test]
    fn settings_not_given_keep_their_value_and_unknown_ones_are_refused() {
        let mut config = Config::default();
        config
            .apply(r#"{"device": "a100", "memory": 1024}"#)
            .unwrap();
        config.apply(r#"{"strict": true}"#).unwrap();
        assert_eq!(
            (
                config.device().key.as_str(),
                config.capacity(),
                config.strict
            ),
            ("a100", 1024, true)
        );
        config.apply(r#"{"memory": null}"#).unwrap();
        assert_eq!(config.capacity(), config.device().memory_bytes);
        assert!(config.apply(r#"{"devise": "a100"}"#).is_err());
        assert!(config.apply(r#"{"device": "gtx9000"}"#).is_err());
        assert_eq!(config.device().key, "a100");
    }
}
