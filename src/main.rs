//! temp
use muso::report::{Style, terminal};
fn main() {
    let e = muso::engine::CpuEngine::new(None).unwrap();
    let t = muso::pipeline::table1::run(&e, &Default::default(), &mut ()).unwrap();
    println!("{}", terminal::table(&t, Style { colour: false }));
    println!("{:.1} s", t.seconds);
}
