//! Which lane and register hold which element.
//!
//! `mma` fragments are laid out as PTX ISA 9.0 draws them. One rule covers every type: eight groups of four lanes
//! span eight rows of A (columns of B); a lane's register holds neighbours along k, and the four lanes of a group
//! follow each other along k. Further registers of A alternate between rows 0–7 and 8–15, then move on along k.
//!
//! `wmma` fragments are opaque: PTX leaves their layout to the device, and a program may only treat all elements
//! alike. Here they are row-major over the lanes; a fragment with more room than elements holds them repeatedly, as
//! devices do for `f16`.

use super::{Element, LANES, Shape};

/// Which matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The left factor, m×k.
    A,
    /// The right factor, k×n.
    B,
    /// The addend and the result, m×n.
    C,
}

/// Whose layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `mma.sync`: documented.
    Mma,
    /// `wmma`: opaque.
    Wmma,
}

/// How a warp holds one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Whose layout.
    pub family: Family,
    /// Which matrix.
    pub role: Role,
    /// The product it takes part in.
    pub shape: Shape,
    /// What the elements are.
    pub element: Element,
}

impl Fragment {
    /// Rows and columns of the matrix.
    pub fn size(&self) -> (usize, usize) {
        let Shape { m, n, k } = self.shape;
        match self.role {
            Role::A => (m, k),
            Role::B => (k, n),
            Role::C => (m, n),
        }
    }

    /// Registers of each lane.
    pub fn registers(&self) -> usize {
        let (rows, columns) = self.size();
        // The one type whose wmma factors have a fixed size whatever the shape.
        if self.family == Family::Wmma && self.element == Element::F16 && self.role != Role::C {
            return 8;
        }
        rows * columns / LANES / self.element.per_register()
    }

    /// Row and column of element `index` of a register of a lane.
    pub fn position(&self, lane: usize, register: usize, index: usize) -> (usize, usize) {
        let (rows, columns) = self.size();
        let place = self.run(register, index).place(lane) % (rows * columns);
        (place / columns, place % columns)
    }

    /// Where the lanes' elements `index` of a register lie in the row-major matrix, modulo its size.
    pub fn run(&self, register: usize, index: usize) -> Run {
        let (_, columns) = self.size();
        let per_register = self.element.per_register();
        match (self.family, self.role) {
            (Family::Mma, Role::A) => {
                let halves = self.shape.m / 8;
                let (lower, block) = (register % halves, register / halves);
                Run {
                    first: 8 * lower * columns + 4 * block * per_register + index,
                    per_group: columns,
                    per_member: per_register,
                }
            }
            (Family::Mma, Role::B) => Run {
                first: (4 * register * per_register + index) * columns,
                per_group: 1,
                per_member: per_register * columns,
            },
            (Family::Mma, Role::C) => {
                // A lane holds two neighbours of a row, in one register if they fit.
                let element = register * per_register + index;
                Run {
                    first: 8 * (element / 2) * columns + element % 2,
                    per_group: columns,
                    per_member: 2,
                }
            }
            (Family::Wmma, _) => Run {
                first: register * LANES * per_register + index,
                per_group: 4 * per_register,
                per_member: per_register,
            },
        }
    }
}

/// Places of a warp's lanes that are `4 group + member` each: linear in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Of lane 0.
    pub first: usize,
    /// From one group of four lanes to the next.
    pub per_group: usize,
    /// From one lane of a group to the next.
    pub per_member: usize,
}

impl Run {
    /// The place of a lane.
    #[inline(always)]
    pub fn place(&self, lane: usize) -> usize {
        self.first + lane / 4 * self.per_group + lane % 4 * self.per_member
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn fragment(role: Role, (m, n, k): (usize, usize, usize), element: Element) -> Fragment {
        Fragment {
            family: Family::Mma,
            role,
            shape: Shape { m, n, k },
            element,
        }
    }

    /// The index formulae of PTX ISA 9.0, section by section, as it writes them: element i of a lane.
    #[test]
    fn positions_are_those_of_the_manual() {
        for lane in 0..LANES {
            let (group, member) = (lane >> 2, lane % 4);
            let check = |role,
                         shape,
                         element: Element,
                         count: usize,
                         want: &dyn Fn(usize) -> (usize, usize)| {
                let fragment = fragment(role, shape, element);
                let per = element.per_register();
                assert_eq!(fragment.registers() * per, count, "{fragment:?}");
                for i in 0..count {
                    assert_eq!(
                        fragment.position(lane, i / per, i % per),
                        want(i),
                        "{fragment:?} {lane} {i}"
                    );
                }
            };
            let low = |yes: bool| if yes { group } else { group + 8 };

            // m16n8k8, .f16 and .bf16.
            check(Role::A, (16, 8, 8), Element::F16, 4, &|i| {
                (low(i < 2), member * 2 + (i & 1))
            });
            check(Role::B, (16, 8, 8), Element::Bf16, 2, &|i| {
                (member * 2 + i, group)
            });
            // m16n8k16, .f16 and .bf16.
            check(Role::A, (16, 8, 16), Element::F16, 8, &|i| {
                (
                    low(i < 2 || (4..6).contains(&i)),
                    member * 2 + (i & 1) + if i >= 4 { 8 } else { 0 },
                )
            });
            check(Role::B, (16, 8, 16), Element::F16, 4, &|i| {
                (member * 2 + (i & 1) + if i >= 2 { 8 } else { 0 }, group)
            });
            for element in [Element::F16, Element::F32, Element::S32, Element::F64] {
                check(Role::C, (16, 8, 16), element, 4, &|i| {
                    (low(i < 2), member * 2 + (i & 1))
                });
            }
            // m16n8k4 and m16n8k8, .tf32.
            check(Role::A, (16, 8, 4), Element::Tf32, 2, &|i| {
                (low(i == 0), member)
            });
            check(Role::B, (16, 8, 4), Element::Tf32, 1, &|_| (member, group));
            check(Role::A, (16, 8, 8), Element::Tf32, 4, &|i| {
                (
                    low(i == 0 || i == 2),
                    if i < 2 { member } else { member + 4 },
                )
            });
            check(Role::B, (16, 8, 8), Element::Tf32, 2, &|i| {
                (if i == 0 { member } else { member + 4 }, group)
            });
            // m8n8k4, .f64.
            check(Role::A, (8, 8, 4), Element::F64, 1, &|_| (group, member));
            check(Role::B, (8, 8, 4), Element::F64, 1, &|_| (member, group));
            check(Role::C, (8, 8, 4), Element::F64, 2, &|i| {
                (group, member * 2 + (i & 1))
            });
            // m16n8k4, m16n8k8, m16n8k16, .f64.
            check(Role::A, (16, 8, 4), Element::F64, 2, &|i| {
                (low(i == 0), member)
            });
            check(Role::A, (16, 8, 8), Element::F64, 4, &|i| {
                (
                    low(i == 0 || i == 2),
                    if i < 2 { member } else { member + 4 },
                )
            });
            check(Role::A, (16, 8, 16), Element::F64, 8, &|i| {
                (low(i % 2 == 0), i / 2 * 4 + member)
            });
            check(Role::B, (16, 8, 16), Element::F64, 4, &|i| {
                (member + i * 4, group)
            });
            // m8n8k16, m16n8k16, m16n8k32, .s8 and .u8.
            check(Role::A, (8, 8, 16), Element::S8, 4, &|i| {
                (group, member * 4 + i)
            });
            check(Role::B, (8, 8, 16), Element::U8, 4, &|i| {
                (member * 4 + i, group)
            });
            check(Role::C, (8, 8, 16), Element::S32, 2, &|i| {
                (group, member * 2 + i)
            });
            check(Role::A, (16, 8, 16), Element::U8, 8, &|i| {
                (low(i < 4), member * 4 + (i & 3))
            });
            check(Role::B, (16, 8, 16), Element::S8, 4, &|i| {
                (member * 4 + (i & 3), group)
            });
            check(Role::A, (16, 8, 32), Element::S8, 16, &|i| {
                (
                    low(i < 4 || (8..12).contains(&i)),
                    member * 4 + (i & 3) + if i < 8 { 0 } else { 16 },
                )
            });
            check(Role::B, (16, 8, 32), Element::S8, 8, &|i| {
                (member * 4 + (i & 3) + if i < 4 { 0 } else { 16 }, group)
            });
        }
    }

    #[test]
    fn opaque_fragments_hold_every_element_equally_often() {
        for (element, (m, n, k), a, b, c) in [
            (Element::F16, (16, 16, 16), 8, 8, 8),
            (Element::F16, (8, 32, 16), 8, 8, 8),
            (Element::Bf16, (16, 16, 16), 4, 4, 8),
            (Element::Bf16, (32, 8, 16), 8, 2, 8),
            (Element::Tf32, (16, 16, 8), 4, 4, 8),
            (Element::S8, (8, 32, 16), 1, 4, 8),
            (Element::F64, (8, 8, 4), 1, 1, 2),
        ] {
            for (role, want) in [(Role::A, a), (Role::B, b), (Role::C, c)] {
                let element = match (role, element) {
                    (Role::C, Element::F64) => Element::F64,
                    (Role::C, _) => Element::F32,
                    _ => element,
                };
                let fragment = Fragment {
                    family: Family::Wmma,
                    ..fragment(role, (m, n, k), element)
                };
                assert_eq!(fragment.registers(), want, "{fragment:?}");
                let mut seen = BTreeMap::new();
                for lane in 0..LANES {
                    for register in 0..fragment.registers() {
                        for index in 0..element.per_register() {
                            *seen
                                .entry(fragment.position(lane, register, index))
                                .or_insert(0) += 1;
                        }
                    }
                }
                let (rows, columns) = fragment.size();
                assert_eq!(seen.len(), rows * columns);
                let times = LANES * want * element.per_register() / (rows * columns);
                assert!(seen.values().all(|&count| count == times));
            }
        }
    }
}
