use taut_sim::worlds::{Plan, Without, run};
#[test]
fn dbg() {
    let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    let without: Vec<_> = std::env::var("WO")
        .unwrap_or_default()
        .split(',')
        .filter(|s| !s.is_empty())
        .map(|f| f.parse().unwrap())
        .collect();
    let plan = Plan::new(seed, &Without(without));
    let text = format!("{plan:#?}");
    let i = text.find("    hosts:").unwrap();
    eprintln!("{}", &text[i..]);
    eprintln!("{:?}", run(&plan).failure);
}
