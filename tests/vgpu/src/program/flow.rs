//! Basic blocks, and where the lanes that part at a branch meet again.
//!
//! Lanes meet at the immediate post-dominator of the branch, where paths that only lead to an exit do not count: a
//! lane that leaves does not keep the others apart, so that the barrier after `if (i >= n) return;` is reached by all
//! that are still there together.

use super::{
    Code,
    op::{NONE, Op},
};

/// A reconvergence point that no lane reaches.
pub(crate) const NEVER: u32 = u32::MAX;

/// Turns branches that lead to nothing but an exit into exits, and skips branches to branches.
pub(super) fn exits(code: &mut Code) {
    for index in 0..code.insts.len() {
        let Op::Branch { mut target, .. } = code.insts[index].op else {
            continue;
        };
        // A ring of branches is an endless loop of the kernel's own; following it is not.
        for _ in 0..code.insts.len() {
            match code.insts.get(target as usize) {
                Some(inst) if inst.guard == NONE => match inst.op {
                    Op::Branch { target: next, .. } => target = next,
                    _ => break,
                },
                _ => break,
            }
        }
        let end = match code.insts.get(target as usize) {
            Some(inst) if inst.guard == NONE => inst.op,
            Some(_) => Op::Nop,
            None => Op::Exit,
        };
        code.insts[index].op = match end {
            Op::Exit | Op::Return => end,
            _ => Op::Branch {
                target,
                reconverge: NEVER,
            },
        };
    }
}

/// The control flow between basic blocks.
#[derive(Debug)]
pub(super) struct Graph {
    /// First instruction of each block, and one past the last of all.
    pub starts: Vec<u32>,
    pub successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
}

impl Graph {
    pub(super) fn new(code: &Code) -> Self {
        let count = code.insts.len();
        let mut leads = vec![false; count + 1];
        leads[0] = true;
        for (pc, inst) in code.insts.iter().enumerate() {
            match inst.op {
                Op::Branch { target, .. } => {
                    leads[target as usize] = true;
                    leads[pc + 1] = true;
                }
                Op::BranchTable { targets, .. } => {
                    for &target in &code.lists[targets.start as usize..][..targets.len as usize] {
                        leads[target as usize] = true;
                    }
                    leads[pc + 1] = true;
                }
                Op::Exit | Op::Return | Op::Trap { .. } if inst.guard == NONE => {
                    leads[pc + 1] = true
                }
                _ => {}
            }
        }
        leads[count] = true;
        let starts: Vec<u32> = (0..=count as u32)
            .filter(|&pc| leads[pc as usize])
            .collect();
        let mut block_of = vec![usize::MAX; count + 1];
        for (block, &start) in starts.iter().enumerate() {
            block_of[start as usize] = block;
        }
        let blocks = starts.len() - 1;
        let mut successors = vec![Vec::new(); blocks];
        for block in 0..blocks {
            let end = starts[block + 1] as usize;
            let last = &code.insts[end - 1];
            let mut next = Vec::new();
            let mut falls = last.guard != NONE;
            match last.op {
                Op::Branch { target, .. } => next.push(block_of[target as usize]),
                Op::BranchTable { targets, .. } => next.extend(
                    code.lists[targets.start as usize..][..targets.len as usize]
                        .iter()
                        .map(|&target| block_of[target as usize]),
                ),
                Op::Exit | Op::Return | Op::Trap { .. } => {}
                _ => falls = true,
            }
            if falls {
                next.push(block_of[end]);
            }
            next.retain(|&n| n < blocks);
            next.sort_unstable();
            next.dedup();
            successors[block] = next;
        }
        let mut predecessors = vec![Vec::new(); blocks];
        for (block, next) in successors.iter().enumerate() {
            for &n in next {
                predecessors[n].push(block);
            }
        }
        Self {
            starts,
            successors,
            predecessors,
        }
    }

    fn len(&self) -> usize {
        self.successors.len()
    }

    /// Writes the reconvergence points into the branches.
    pub(super) fn reconverge(&self, code: &mut Code) {
        let meet = self.post_dominators();
        for block in 0..self.len() {
            let last = self.starts[block + 1] as usize - 1;
            let point = meet[block].map_or(NEVER, |m| self.starts[m]);
            match &mut code.insts[last].op {
                Op::Branch { reconverge, .. } | Op::BranchTable { reconverge, .. } => {
                    *reconverge = point
                }
                _ => {}
            }
        }
    }

    /// The immediate post-dominator of each block, if it has one.
    ///
    /// Each block is judged by one exit alone, the one that most blocks lead to among those that it can reach.
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let mut exits: Vec<(usize, usize)> = (0..self.len())
            .filter(|&block| self.successors[block].is_empty())
            .map(|block| (self.leading_to(block).iter().filter(|&&r| r).count(), block))
            .collect();
        exits.sort_unstable_by(|a, b| b.cmp(a));
        let mut result = vec![None; self.len()];
        let mut done = vec![false; self.len()];
        for (_, exit) in exits {
            let mut inside = self.leading_to(exit);
            for block in 0..self.len() {
                inside[block] &= !done[block];
            }
            self.dominate(exit, &inside, &mut result);
            for block in 0..self.len() {
                done[block] |= inside[block];
            }
        }
        result
    }

    /// Which blocks have a path to `block`.
    fn leading_to(&self, block: usize) -> Vec<bool> {
        let mut seen = vec![false; self.len()];
        let mut stack = vec![block];
        seen[block] = true;
        while let Some(at) = stack.pop() {
            for &before in &self.predecessors[at] {
                if !seen[before] {
                    seen[before] = true;
                    stack.push(before);
                }
            }
        }
        seen
    }

    /// Dominators of the reversed graph among the blocks `inside`, from `root` (Cooper, Harvey and Kennedy).
    fn dominate(&self, root: usize, inside: &[bool], result: &mut [Option<usize>]) {
        let mut order = Vec::new();
        let mut number = vec![usize::MAX; self.len()];
        let mut seen = vec![false; self.len()];
        let mut stack = vec![(root, 0)];
        seen[root] = true;
        while let Some((block, next)) = stack.last_mut() {
            match self.predecessors[*block].get(*next) {
                Some(&before) => {
                    *next += 1;
                    if inside[before] && !seen[before] {
                        seen[before] = true;
                        stack.push((before, 0));
                    }
                }
                None => {
                    number[*block] = order.len();
                    order.push(*block);
                    stack.pop();
                }
            }
        }
        let mut dominator = vec![None; self.len()];
        dominator[root] = Some(root);
        let mut changed = true;
        while changed {
            changed = false;
            for &block in order.iter().rev().filter(|&&b| b != root) {
                let mut new: Option<usize> = None;
                for &after in self.successors[block]
                    .iter()
                    .filter(|&&s| inside[s] && dominator[s].is_some())
                {
                    new = Some(match new {
                        None => after,
                        Some(other) => meet(other, after, &dominator, &number),
                    });
                }
                if dominator[block] != new {
                    dominator[block] = new;
                    changed = true;
                }
            }
        }
        for &block in order.iter().filter(|&&b| b != root) {
            result[block] = dominator[block];
        }
    }
}

fn meet(mut a: usize, mut b: usize, dominator: &[Option<usize>], number: &[usize]) -> usize {
    while a != b {
        // The root has the greatest number, so both walks end there at the latest.
        while number[a] < number[b] {
            a = dominator[a].unwrap_or(b);
        }
        while number[b] < number[a] {
            b = dominator[b].unwrap_or(a);
        }
    }
    a
}
