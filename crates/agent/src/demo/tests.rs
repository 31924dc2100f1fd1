//! Every row of the table, cards, restarts, on a gateway in virtual time.

mod assets;
mod cards;
mod restart;
mod rows;

use super::Demo;
use crate::testing::Gateway;

fn gateway() -> Gateway<Demo> {
    Gateway::new(Demo::new)
}
