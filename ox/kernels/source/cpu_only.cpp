// Kernels of a CPU alone; on a GPU cuDNN has them. `shape` are the numbers of ox::Convolution, in its order.

// They need memory of their own: what they return is 0, or 1 where there was none.
#define HOST(name, ...) extern "C" int name(__VA_ARGS__) { return ox::status_of([&]()
#define DONE ); }

static const ox::Convolution& convolution(const long long* shape) { return *reinterpret_cast<const ox::Convolution*>(shape); }

static bool depthwise(const ox::Convolution& s) { return s.inputs == 1 && s.groups > 1; }

HOST(ox_conv_forward, const long long* shape, const float* images, const float* weights, const float* bias, float* output) {
    const ox::Convolution& s = convolution(shape);
    const ox::Alone alone(s.small());
    auto run = ox::convolution_forward;
    if (depthwise(s)) run = ox::depthwise_forward;
    else if (ox::winograd_fits(s)) run = ox::winograd_forward;
    else if (ox::few_channels(s, s.inputs, s.outputs)) run = ox::convolution_forward_in_lines;
    run(s, images, weights, bias, output);
} DONE

HOST(ox_conv_backward_images, const long long* shape, const float* gradient, const float* weights, const float* bias, float* result) {
    const ox::Convolution& s = convolution(shape);
    const ox::Alone alone(s.small());
    auto run = ox::convolution_backward_images;
    if (depthwise(s)) run = ox::depthwise_backward_images;
    else if (ox::winograd_fits(s)) run = ox::winograd_backward_images;
    else if (ox::few_channels(s, s.outputs, s.inputs)) run = ox::convolution_backward_images_in_lines;
    run(s, gradient, weights, bias, result);
} DONE

HOST(ox_conv_backward_weights, const long long* shape, const float* gradient, const float* images, float* result) {
    const ox::Convolution& s = convolution(shape);
    const ox::Alone alone(s.small());
    auto run = ox::convolution_backward_weights;
    if (depthwise(s)) run = ox::depthwise_backward_weights;
    else if (ox::winograd_fits(s)) run = ox::winograd_backward_weights;
    else if (ox::few_channels(s, s.inputs, s.outputs)) run = ox::convolution_backward_weights_in_lines;
    run(s, gradient, images, result);
} DONE

// result (rows, columns) = a (rows, depth) b (depth, columns), plus a bias for each column or nothing (0); steps in floats
HOST(ox_matmul, long long rows, long long depth, long long columns, const float* a, long long a_row_step, long long a_column_step, const float* b, long long b_row_step, long long b_column_step, const float* bias, float* result) {
    ox::product(rows, depth, columns, {a, a_row_step, a_column_step}, {b, b_row_step, b_column_step}, bias, result, columns);
} DONE

// `count` products at once; `steps` are the floats from one matrix to the next: of a, its rows and columns, and of b
HOST(ox_batched_matmul, long long count, long long rows, long long depth, long long columns, const float* a, const float* b, const long long* steps, float* result) {
    ox::products(count, rows, depth, columns, {a, steps[1], steps[2]}, steps[0], {b, steps[4], steps[5]}, steps[3], result);
} DONE

// The same of bfloat16.
HOST(ox_matmul_bfloat16, long long rows, long long depth, long long columns, const unsigned short* a, long long a_row_step, long long a_column_step, const unsigned short* b, long long b_row_step, long long b_column_step, const unsigned short* bias, unsigned short* result) {
    ox::half_product(rows, depth, columns, {a, a_row_step, a_column_step}, {b, b_row_step, b_column_step}, bias, result);
} DONE

HOST(ox_batched_matmul_bfloat16, long long count, long long rows, long long depth, long long columns, const unsigned short* a, const unsigned short* b, const long long* steps, unsigned short* result) {
    ox::half_products(count, rows, depth, columns, {a, steps[1], steps[2]}, steps[0], {b, steps[4], steps[5]}, steps[3], result);
} DONE

// `shape` are the numbers of ox::Attention, `gradients` those of ox::AttentionGradients, pointers as addresses
HOST(ox_attention, const long long* shape, float scale) {
    ox::attention_forward(*reinterpret_cast<const ox::Attention*>(shape), scale);
} DONE

HOST(ox_attention_backward, const long long* shape, const long long* gradients, float scale) {
    ox::attention_backward(*reinterpret_cast<const ox::Attention*>(shape), *reinterpret_cast<const ox::AttentionGradients*>(gradients), scale);
} DONE

// `shape` are the numbers of ox::Pooling; `places` may be 0
HOST(ox_max_pool, long long planes, const long long* shape, const float* images, float* output, long long* places) {
    ox::max_pool(planes, *reinterpret_cast<const ox::Pooling*>(shape), images, output, places);
} DONE

HOST(ox_max_pool_backward, long long planes, long long size, long long out_size, const float* gradient, const long long* places, float* result) {
    ox::max_pool_backward(planes, size, out_size, gradient, places, result);
} DONE

// `shape` are the numbers of ox::Averaging
HOST(ox_average_pool_backward, long long planes, const long long* shape, const float* gradient, float* result) {
    ox::average_pool_backward(planes, *reinterpret_cast<const ox::Averaging*>(shape), gradient, result);
} DONE

static const ox::Recurrence& recurrence(const long long* shape) { return *reinterpret_cast<const ox::Recurrence*>(shape); }

// `shape` are the numbers of ox::Recurrence; `lengths` and `y_gradient` may be 0
HOST(ox_lstm, const long long* shape, const float* totals, const float* recurrent, const float* first_state, const float* first_cell, const long long* lengths, float* y, float* gates, float* cells) {
    const ox::Recurrence& s = recurrence(shape);
    ox::recurrent_forward(s, recurrent, first_state, lengths, y, ox::LstmCell{s, totals, first_cell, gates, cells});
} DONE

HOST(ox_lstm_backward, const long long* shape, const float* recurrent, const float* first_cell, const long long* lengths, const float* gates, const float* cells, const float* y_gradient, const float* state_gradient, float* slopes, float* to_state, float* to_cell) {
    const ox::Recurrence& s = recurrence(shape);
    ox::recurrent_backward(s, recurrent, lengths, y_gradient, state_gradient, to_state, ox::LstmSlopes{s, first_cell, gates, cells, slopes, to_cell});
} DONE

HOST(ox_gru, const long long* shape, const float* totals, const float* inner, const float* recurrent, const float* first_state, const long long* lengths, float* y, float* gates) {
    const ox::Recurrence& s = recurrence(shape);
    ox::recurrent_forward(s, recurrent, first_state, lengths, y, ox::GruCell{s, totals, inner, first_state, y, gates});
} DONE

HOST(ox_gru_backward, const long long* shape, const float* recurrent, const float* first_state, const long long* lengths, const float* y, const float* gates, const float* y_gradient, const float* state_gradient, float* slopes, float* to_state) {
    const ox::Recurrence& s = recurrence(shape);
    ox::recurrent_backward(s, recurrent, lengths, y_gradient, state_gradient, to_state, ox::GruSlopes{s, first_state, y, gates, slopes});
} DONE

HOST(ox_rnn, const long long* shape, const float* totals, const float* recurrent, const float* first_state, const long long* lengths, float* y) {
    const ox::Recurrence& s = recurrence(shape);
    ox::recurrent_forward(s, recurrent, first_state, lengths, y, ox::RnnCell{s, totals});
} DONE

HOST(ox_rnn_backward, const long long* shape, const float* recurrent, const long long* lengths, const float* y, const float* y_gradient, const float* state_gradient, float* slopes, float* to_state) {
    const ox::Recurrence& s = recurrence(shape);
    ox::recurrent_backward(s, recurrent, lengths, y_gradient, state_gradient, to_state, ox::RnnSlopes{s, y, slopes});
} DONE

// by `kind` as in reduction.h, of each row, divided by `divisor`
HOST(ox_reduce_rows, long long rows, long long columns, long long kind, float divisor, const float* input, float* result) {
    ox::reduce_rows(rows, columns, kind, divisor, input, result);
} DONE

// `shape` are the numbers of ox::Copying; `line` is the axis along which the input's numbers lie one behind the other
HOST(ox_copy, const long long* shape, long long line, const float* input, float* output) {
    const ox::Copying& c = *reinterpret_cast<const ox::Copying*>(shape);
    if (line == c.axes - 1) ox::copy_rows(c, input, output);
    else ox::copy_tiles(c, line, input, output);
} DONE

// of elements of any type, `bytes` long
HOST(ox_triangles, long long count, long long rows, long long columns, long long bytes, long long k, long long upper, const float* input, float* output) {
    ox::triangles(count, rows, columns, bytes, k, upper != 0, (const char*)input, (char*)output);
} DONE

HOST(ox_take_rows, long long size, long long count, long long width, const long long* places, const float* rows, float* result) {
    ox::take_rows(size, count, width, places, rows, result);
} DONE

HOST(ox_index_add, long long size, long long count, long long width, const long long* places, const float* rows, float* result) {
    ox::index_add(size, count, width, places, rows, result);
} DONE
