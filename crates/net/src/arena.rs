//! All parameters of a network in one buffer, each tensor a named view of it.

use crate::random::Site;
use untuned::space::{TensorRange, scales};

/// The first site of the initial weights; the n-th tensor has the n-th site after it.
const WEIGHTS: u32 = 0x1417_0000;

/// Tensors start at multiples of so many numbers: a cache line of f32. What lies between them is 0 and stays 0, so that
/// norms and updates can pass over the whole buffer.
const ALIGNMENT: usize = 16;

/// Where a matrix stands in the arena: `rows` × `columns`, row by row. A vector has one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Where its first number is.
    pub offset: usize,
    /// The outer size.
    pub rows: usize,
    /// The inner size: numbers that stand side by side.
    pub columns: usize,
}

impl View {
    /// How many numbers it has.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its range in the buffer.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// How a tensor starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initial {
    /// Every number the same.
    Constant(f32),
    /// Normal, with this deviation.
    Normal(f64),
    /// Uniform between −bound and bound.
    Uniform(f64),
}

impl Initial {
    /// The square of a number, on average.
    pub fn mean_square(self) -> f64 {
        match self {
            Initial::Constant(value) => f64::from(value).powi(2),
            Initial::Normal(deviation) => deviation.powi(2),
            Initial::Uniform(bound) => bound.powi(2) / 3.0,
        }
    }
}

/// A tensor of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name, like `blocks.3.attention.qkv`; the key in a checkpoint.
    pub name: String,
    /// Where it stands.
    pub view: View,
    /// Its sizes as a checkpoint states them: one for a vector, two for a matrix.
    pub shape: Vec<usize>,
    /// How it starts.
    pub initial: Initial,
}

impl Tensor {
    /// Whether it has two or more sizes.
    pub fn is_matrix(&self) -> bool {
        self.shape.len() > 1
    }
}

/// The tensors of a network and where each stands.
///
/// ```
/// use untuned_net::arena::{Initial, Layout};
///
/// let mut layout = Layout::default();
/// let weight = layout.matrix("up", 3, 5, Initial::Normal(0.02));
/// let bias = layout.vector("bias", 3, Initial::Constant(0.0));
/// assert_eq!((weight.offset, bias.offset), (0, 16));
/// assert_eq!((layout.parameters(), layout.len()), (18, 32));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    len: usize,
}

impl Layout {
    /// Adds a matrix of `rows` × `columns`.
    pub fn matrix(&mut self, name: impl Into<String>, rows: usize, columns: usize, initial: Initial) -> View {
        self.add(name.into(), vec![rows, columns], initial)
    }

    /// Adds a vector.
    pub fn vector(&mut self, name: impl Into<String>, len: usize, initial: Initial) -> View {
        self.add(name.into(), vec![len], initial)
    }

    /// Adds matrices of the same width that one product may use as a single matrix: they stand one below the other without gaps.
    pub fn stacked(&mut self, parts: &[(String, usize, Initial)], columns: usize) -> View {
        let offset = self.len;
        let mut rows = 0;
        for (name, part, initial) in parts {
            let view = self.add(name.clone(), vec![*part, columns], *initial);
            self.len = view.range().end;
            rows += part;
        }
        self.len = self.len.next_multiple_of(ALIGNMENT);
        View { offset, rows, columns }
    }

    fn add(&mut self, name: String, shape: Vec<usize>, initial: Initial) -> View {
        let (rows, columns) = match shape[..] {
            [columns] => (1, columns),
            _ => (shape[0], shape[1]),
        };
        let view = View { offset: self.len, rows, columns };
        self.len += view.len().next_multiple_of(ALIGNMENT);
        self.tensors.push(Tensor { name, view, shape, initial });
        view
    }

    /// The tensors in order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Where the tensors with two or more sizes stand, in order: what weight decay is for, unlike the weights of norms and biases.
    pub fn matrices(&self) -> Vec<View> {
        self.tensors.iter().filter(|tensor| tensor.is_matrix()).map(|tensor| tensor.view).collect()
    }

    /// The tensors as an optimizer sees them: matrices decay, and what a tensor's numbers are drawn from is their scale. The gap behind a
    /// tensor belongs to it.
    pub fn tensor_ranges(&self) -> Vec<TensorRange> {
        let square = |tensor: &Tensor| tensor.view.len() as f64 * tensor.initial.mean_square();
        let sizes = self.tensors.iter().map(|tensor| (tensor.is_matrix(), tensor.view.len(), square(tensor)));
        let ends = self.tensors.iter().skip(1).map(|next| next.view.offset).chain([self.len]);
        let tensors = self.tensors.iter().zip(ends).zip(scales(sizes));
        tensors
            .map(|((tensor, end), scale)| TensorRange {
                range: tensor.view.offset..end,
                decays: tensor.is_matrix(),
                scale,
            })
            .collect()
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.view.len()).sum()
    }

    /// The length of the buffer: the parameters and the gaps between tensors.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parameters of an arena without the gaps, tensor by tensor.
    pub fn packed(&self, arena: &[f32]) -> Vec<f32> {
        self.tensors.iter().flat_map(|tensor| &arena[tensor.view.range()]).copied().collect()
    }

    /// The arena of [packed](Layout::packed) parameters; nothing where their number is another.
    pub fn unpacked(&self, parameters: &[f32]) -> Option<Vec<f32>> {
        if parameters.len() != self.parameters() {
            return None;
        }
        let (mut arena, mut rest) = (vec![0.0; self.len], parameters);
        for tensor in &self.tensors {
            let (first, after) = rest.split_at(tensor.view.len());
            arena[tensor.view.range()].copy_from_slice(first);
            rest = after;
        }
        Some(arena)
    }

    /// `x_0`: a function of the seed, made on the host, the same for every device.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut x = vec![0.0; self.len];
        for (index, tensor) in self.tensors.iter().enumerate() {
            let site = Site { seed, site: WEIGHTS + index as u32, step: 0 };
            let out = &mut x[tensor.view.range()];
            match tensor.initial {
                Initial::Constant(value) => out.fill(value),
                Initial::Normal(deviation) => site.fill_normal(out, deviation),
                Initial::Uniform(bound) => site.fill_uniform(out, -bound as f32, bound as f32),
            }
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_parameters_have_no_gaps_and_come_back() {
        let mut layout = Layout::default();
        layout.vector("a", 3, Initial::Constant(1.0));
        layout.matrix("b", 2, 2, Initial::Normal(1.0));
        let arena = layout.initial(1);
        let packed = layout.packed(&arena);
        assert_eq!((packed.len(), &packed[..3], packed[3]), (7, &[1.0; 3][..], arena[16]));
        assert_eq!(layout.matrices(), [View { offset: 16, rows: 2, columns: 2 }]);
        assert_eq!(layout.unpacked(&packed).unwrap(), arena);
        assert!(layout.unpacked(&packed[1..]).is_none());
    }

    #[test]
    fn stacked_matrices_have_no_gaps_between_them() {
        let mut layout = Layout::default();
        let parts = ["q", "k", "v"].map(|name| (name.to_string(), 5, Initial::Constant(1.0)));
        let all = layout.stacked(&parts, 3);
        let after = layout.vector("after", 1, Initial::Constant(0.0));
        assert_eq!((all.rows, all.columns, after.offset), (15, 3, 48));
        assert_eq!(layout.tensors()[1].view.offset, 15);
        assert_eq!(layout.initial(1)[..45], [1.0; 45]);
    }

    #[test]
    fn gaps_are_zero_and_every_tensor_starts_as_it_says() {
        let mut layout = Layout::default();
        let (ones, uniform) = (
            layout.vector("ones", 5, Initial::Constant(1.0)),
            layout.matrix("uniform", 100, 101, Initial::Uniform(0.1)),
        );
        let x = layout.initial(3);
        assert_eq!((&x[ones.range()], &x[5..16]), (&[1.0; 5][..], &[0.0; 11][..]));
        let values = &x[uniform.range()];
        assert!(values.iter().all(|v| (-0.1..0.1).contains(v)));
        // Variance of U(−b, b): b²/3, within five standard errors of 10,100 draws.
        let square = values.iter().map(|v| f64::from(v * v)).sum::<f64>() / values.len() as f64;
        assert!((square - 0.01 / 3.0).abs() < 5.0 * 0.01 * (4.0f64 / 45.0).sqrt() / 100.0, "{square}");
        assert_ne!(x, layout.initial(4));
        assert_eq!(x, layout.initial(3));
    }
}
