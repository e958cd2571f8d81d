//! Every script of this package passes, over both versions of IP.

use std::fs;
use std::path::{Path, PathBuf};

use taut_script::{Config, IpVersion, Script, run};

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "pkt")).collect();
    scripts.sort();
    scripts
}

#[test]
fn pkt_01_every_script_passes() {
    let scripts = scripts();
    assert!(scripts.len() >= 40, "there are {} scripts", scripts.len());
    let mut failures = Vec::new();
    for path in &scripts {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("// "), "{} does not begin by saying what it shows", path.display());
        let script = match Script::parse(&path.display().to_string(), &text) {
            Ok(script) => script,
            Err(failure) => {
                failures.push(failure.to_string());
                continue;
            }
        };
        let own = script.options.iter().any(|(_, name, _)| name == "ip_version");
        let versions: &[IpVersion] = if own { &[IpVersion::V4] } else { &[IpVersion::V4, IpVersion::V6] };
        for &version in versions {
            if let Err(failure) = run(&script, &Config::default().over(version)) {
                failures.push(format!("{} {failure}", version.name()));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} scripts:\n{}", failures.len(), scripts.len(), failures.join("\n"));
}
