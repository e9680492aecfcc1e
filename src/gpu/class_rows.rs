//! The rows of each class, listed by a counting sort: what the segmented sums of `kernels/gram.cu` walk.
//!
//! Class numbers come from the host, so they are sorted there, while the device is busy with rows that came before.

use super::matrix::{DeviceMatrix, View};
use super::module::table::ROW_BLOCK;
use super::staging::Staging;
use super::stream::Stream;
use crate::error::Result;

/// Rows by class, on the device.
#[derive(Debug)]
pub struct ClassRows {
    /// The four lists of [`Lists`], one after the other.
    words: DeviceMatrix<u32>,
    rows: usize,
    classes: usize,
    members: usize,
    runs: usize,
    present: usize,
    longest: usize,
}

impl ClassRows {
    /// Allocates, for use on `stream`, room for the lists of `rows` rows of `classes` classes.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) when it does not fit.
    pub fn uninit(stream: &Stream, rows: usize, classes: usize) -> Result<Self> {
        let room = rows + (rows + 1) + 2 * (classes + 1);
        Ok(Self {
            words: DeviceMatrix::uninit(stream, 1, room)?,
            rows: 0,
            classes,
            members: 0,
            runs: 0,
            present: 0,
            longest: 0,
        })
    }

    /// Lists rows 0, 1, … by their classes, and queues the copy to the device. A row of a class that does not exist is
    /// in no list.
    ///
    /// # Panics
    /// If there are more rows than there is room for.
    pub fn upload(&mut self, staging: &Staging, stream: &Stream, ids: &[i64]) -> Result<()> {
        let lists = Lists::new(ids, self.classes);
        self.rows = ids.len();
        self.members = lists.members.len();
        self.runs = lists.runs.len() - 1;
        let sizes = lists
            .starts
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as usize);
        self.present = sizes.clone().filter(|&size| size > 0).count();
        self.longest = sizes.max().unwrap_or(0);
        let all = [
            &lists.members,
            &lists.runs,
            &lists.starts,
            &lists.first_runs,
        ];
        let count = all.map(Vec::len).iter().sum();
        let to = self.words.view_mut().into_block((0, 0), (1, count));
        staging.upload(stream, to, |_, mut room| {
            for list in all {
                let (part, rest) = room.split_at_mut(list.len());
                part.copy_from_slice(list);
                room = rest;
            }
        })
    }

    /// Returns the number of rows, listed or not, and of classes.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.rows, self.classes)
    }

    /// Returns the number of rows in lists.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// Returns the number of runs: pairs of a class and a row block that has rows of it.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the number of classes that have rows.
    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// Returns the number of rows of the largest class.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the row numbers, class after class, and where each run begins among them.
    pub(super) fn members_and_runs(&self) -> (View<'_, u32>, View<'_, u32>) {
        (
            self.list(0, self.members),
            self.list(self.members, self.runs + 1),
        )
    }

    /// Returns where each class begins among the row numbers.
    pub(super) fn starts(&self) -> View<'_, u32> {
        self.list(self.members + self.runs + 1, self.classes + 1)
    }

    /// Returns where each class begins among the runs.
    pub(super) fn first_runs(&self) -> View<'_, u32> {
        let before = self.members + self.runs + 1 + self.classes + 1;
        self.list(before, self.classes + 1)
    }

    fn list(&self, first: usize, count: usize) -> View<'_, u32> {
        self.words.view().block((0, first), (1, count))
    }
}

/// Rows by class. A list of beginnings ends with the number of what it points into.
#[derive(Debug, PartialEq, Eq)]
struct Lists {
    /// Row numbers, class after class, ascending within a class.
    members: Vec<u32>,
    /// Where each run begins among them: a class within a row block.
    runs: Vec<u32>,
    /// Where each class begins among them.
    starts: Vec<u32>,
    /// Where each class begins among the runs.
    first_runs: Vec<u32>,
}

impl Lists {
    fn new(ids: &[i64], classes: usize) -> Self {
        let class = |id: i64| usize::try_from(id).ok().filter(|&id| id < classes);
        let rows = || {
            (0_u32..)
                .zip(ids)
                .filter_map(|(row, &id)| Some((row, class(id)?)))
        };
        let mut starts = vec![0; classes + 1];
        for (_, class) in rows() {
            starts[class + 1] += 1;
        }
        for class in 0..classes {
            starts[class + 1] += starts[class];
        }
        let mut members = vec![0; starts[classes] as usize];
        let mut next = starts.clone();
        for (row, class) in rows() {
            members[next[class] as usize] = row;
            next[class] += 1;
        }
        let (mut runs, mut first_runs) = (Vec::new(), Vec::with_capacity(classes + 1));
        for range in starts.windows(2) {
            first_runs.push(runs.len() as u32);
            let mut block = None;
            for k in range[0]..range[1] {
                let of_this = Some(members[k as usize] / ROW_BLOCK as u32);
                if block != of_this {
                    block = of_this;
                    runs.push(k);
                }
            }
        }
        first_runs.push(runs.len() as u32);
        runs.push(starts[classes]);
        Self {
            members,
            runs,
            starts,
            first_runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lists, ROW_BLOCK};

    #[test]
    fn rows_are_listed_by_class_and_row_block() {
        let mut ids = vec![7; 2 * ROW_BLOCK + 1];
        for (row, id) in [(0, 1), (5, 0), (ROW_BLOCK - 1, 1), (ROW_BLOCK, 1), (9, -1)] {
            ids[row] = id;
        }
        ids[2 * ROW_BLOCK] = 3;
        let block = ROW_BLOCK as u32;
        let lists = Lists {
            members: vec![5, 0, block - 1, block, 2 * block],
            runs: vec![0, 1, 3, 4, 5],
            starts: vec![0, 1, 4, 4, 5],
            first_runs: vec![0, 1, 3, 3, 4],
        };
        assert_eq!(Lists::new(&ids, 4), lists);
        let none = Lists {
            members: vec![],
            runs: vec![0],
            starts: vec![0; 3],
            first_runs: vec![0; 3],
        };
        assert_eq!(Lists::new(&[], 2), none);
    }
}
