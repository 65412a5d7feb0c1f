// Kernels of a CPU alone; on a GPU cuDNN has them. `shape` are the numbers of ox::Convolution, in its order.

#define HOST(name, ...) extern "C" void name(__VA_ARGS__)

static const ox::Convolution& convolution(const long long* shape) { return *reinterpret_cast<const ox::Convolution*>(shape); }

HOST(ox_conv_forward, const long long* shape, const float* images, const float* weights, const float* bias, float* output) {
    const ox::Convolution& s = convolution(shape);
    (s.inputs == 1 && s.groups > 1 ? ox::depthwise_forward : ox::convolution_forward)(s, images, weights, bias, output);
}

HOST(ox_conv_backward_images, const long long* shape, const float* gradient, const float* weights, const float* bias, float* result) {
    const ox::Convolution& s = convolution(shape);
    (s.inputs == 1 && s.groups > 1 ? ox::depthwise_backward_images : ox::convolution_backward_images)(s, gradient, weights, bias, result);
}

HOST(ox_conv_backward_weights, const long long* shape, const float* gradient, const float* images, float* result) {
    const ox::Convolution& s = convolution(shape);
    (s.inputs == 1 && s.groups > 1 ? ox::depthwise_backward_weights : ox::convolution_backward_weights)(s, gradient, images, result);
}
