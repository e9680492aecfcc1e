//! Convolutional networks on the processor, without burn: im2col-free direct convolution, forward and backward.
//!
//! burn's convolutions on the processor are general, and slow for the small networks here; most of a step is spent moving
//! data between layouts. Here activations stay [image, row, column, channel] with a border of zeros, so that a row of a
//! convolution's kernel meets one contiguous run of values: there is nothing to unfold (im2col) and no edge to look after.
//!
//! | module | job |
//! |---|---|
//! | [`isa`] | instruction-set dispatch |
//! | [`tile`] | the GEMM micro-kernels, six pixels times sixteen channels |
//! | [`activation`] | the layout of activations, and the arena that keeps their memory |
//! | [`conv`] | direct convolution with packed weights |
//! | [`gradient`] | its gradients with respect to weights and input |
//! | [`pool`] | max and average pooling, flattening |
//! | [`norm`] | batch normalisation |
//! | [`graph`] | an architecture as a list of nodes |
//! | [`infer`] | [`Folded`](crate::Folded): features with batch normalisation folded into the convolutions |
//! | [`train`] | [`Tape`](crate::Tape): training passes that can be differentiated |
//!
//! Every sum has a fixed order: results do not depend on the number of threads or on the instruction set.

pub(crate) mod activation;
pub(crate) mod conv;
pub(crate) mod gradient;
pub(crate) mod graph;
pub(crate) mod infer;
pub(crate) mod isa;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod tile;
pub(crate) mod train;

use burn::tensor::Tensor;

/// Copies the values of a tensor out of burn.
pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.without_autodiff().into_data().convert::<f32>();
    data.try_into_vec().expect("the data was just made f32")
}
