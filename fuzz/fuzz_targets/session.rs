//! Session events: a script of what happens to the core. See [`hermes_mobile_fuzz::world`] for its language.
#![no_main]

use hermes_mobile_fuzz::world::World;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let script = String::from_utf8_lossy(data);
    let mut world = World::new();
    for line in script.lines().take(400) {
        world.step(line);
    }
    world.end();
});
