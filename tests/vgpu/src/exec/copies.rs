//! `cp.async`: data that lands in shared memory when it is waited for, and not before.

use super::lanes::{LANES, lanes};

/// Copies that a warp has issued and not waited for, oldest first.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pending: Vec<Copy>,
    /// Groups that each lane has committed.
    committed: [u32; LANES],
}

/// One instruction's copies.
#[derive(Debug)]
pub(super) struct Copy {
    pub mask: u32,
    pub bytes: u32,
    pub to: [u32; LANES],
    pub data: [[u8; 16]; LANES],
    /// The group that each lane's copy belongs to.
    group: [u32; LANES],
}

impl Copies {
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.committed = [0; LANES];
    }

    pub(super) fn issue(
        &mut self,
        mask: u32,
        bytes: u32,
        to: [u32; LANES],
        data: [[u8; 16]; LANES],
    ) {
        self.pending.push(Copy {
            mask,
            bytes,
            to,
            data,
            group: self.committed,
        });
    }

    pub(super) fn commit(&mut self, mask: u32) {
        for lane in lanes(mask) {
            self.committed[lane] += 1;
        }
    }

    /// Takes out what must have landed when at most `left` groups may be pending (`None`: nothing at all), in order:
    /// each piece with the lanes it concerns.
    pub(super) fn wait(&mut self, mask: u32, left: Option<u32>, mut land: impl FnMut(&Copy, u32)) {
        for copy in &mut self.pending {
            let mut due = 0;
            for lane in lanes(copy.mask & mask) {
                let done = match left {
                    None => true,
                    Some(left) => copy.group[lane] + left < self.committed[lane],
                };
                due |= u32::from(done) << lane;
            }
            if due != 0 {
                land(copy, due);
                copy.mask &= !due;
            }
        }
        self.pending.retain(|copy| copy.mask != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_land_oldest_first_and_lane_by_lane() {
        let mut copies = Copies::default();
        let landed = |copies: &mut Copies, mask, left| {
            let mut list = Vec::new();
            copies.wait(mask, left, |copy, due| list.push((copy.bytes, due)));
            list
        };
        copies.issue(3, 4, [0; LANES], [[0; 16]; LANES]);
        copies.commit(3);
        copies.issue(3, 8, [0; LANES], [[0; 16]; LANES]);
        copies.commit(3);
        copies.issue(3, 16, [0; LANES], [[0; 16]; LANES]);
        assert_eq!(landed(&mut copies, 3, Some(2)), []);
        assert_eq!(landed(&mut copies, 1, Some(1)), [(4, 1)]);
        assert_eq!(landed(&mut copies, 3, Some(0)), [(4, 2), (8, 3)]);
        assert_eq!(landed(&mut copies, 3, Some(0)), []);
        assert_eq!(landed(&mut copies, 3, None), [(16, 3)]);
    }
}
