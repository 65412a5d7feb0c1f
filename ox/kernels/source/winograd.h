// Convolution with a window of 3 by 3 and steps of 1 in 16 instead of 36 multiplications for each 2 by 2 outputs (a
// tile): F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. The gradient of the
// images is the same with turned weights, that of the weights the transposed algorithm. Within a task channels lie last.
// Infinities and NaN would spread over a whole tile: where the result has any, the direct convolution takes its place.
#pragma once
#include <atomic>

#include "convolution.h"

namespace ox {

constexpr long long POINTS = 16;       // numbers of a transformed tile
constexpr long long TILES = 64;        // of a block, about
constexpr long long WIDTH = TILE_COLUMNS;  // of a panel of channels

// Images (samples, channels, height, width) as rows of tiles; a long row is cut in pieces.
struct TiledImages {
    long long samples, channels, height, width, rows, columns, pieces;
    TiledImages(long long n, long long c, long long h, long long w, long long out_height, long long out_width)
        : samples(n), channels(c), height(h), width(w), rows((out_height + 1) / 2), columns((out_width + 1) / 2), pieces((columns + TILES - 1) / TILES) {}
    long long padded() const { return rounded_up(channels, WIDTH); }
    long long units() const { return samples * rows * pieces; }  // pieces of rows of tiles
    long long tiles_of_unit() const { return (columns + pieces - 1) / pieces; }
    long long units_of_block() const { return tiles_of_unit() >= TILES ? 1 : TILES / tiles_of_unit(); }
};

// A unit's place.
struct Unit {
    long long sample, row, first, tiles;
    Unit(const TiledImages& s, long long at) : sample(at / (s.rows * s.pieces)), row(at / s.pieces % s.rows), first(at % s.pieces * s.tiles_of_unit()) {
        tiles = s.columns - first < s.tiles_of_unit() ? s.columns - first : s.tiles_of_unit();
        tiles = tiles < 0 ? 0 : tiles;
    }
};

// `places` positions of one row of an image from x on, each with all channels and zeros up to `padded`; zeros outside.
inline void read_row(const TiledImages& s, const float* image, long long y, long long x, long long places, float* to) {
    const long long padded = s.padded(), plane = s.height * s.width;
    const long long begin = y < 0 || y >= s.height ? places : x < 0 ? (-x < places ? -x : places) : 0;
    const long long end = begin == places ? places : s.width - x < places ? (s.width - x > begin ? s.width - x : begin) : places;
    memset(to, 0, begin * padded * 4);
    memset(to + end * padded, 0, (places - end) * padded * 4);
    const float* line = image + y * s.width + x;
    for (long long c0 = 0; c0 < padded; c0 += WIDTH) {
        const long long real = s.channels - c0 < WIDTH ? s.channels - c0 : WIDTH;
        for (long long p = begin; p < end; p++) {
            const float* from = line + c0 * plane + p;
            float* out = to + p * padded + c0;
            if (real == WIDTH) {
                for (int j = 0; j < WIDTH; j++) out[j] = from[j * plane];
            } else {
                for (int j = 0; j < WIDTH; j++) out[j] = j < real ? from[j * plane] : 0.0f;
            }
        }
    }
}

// Where a transformed tile's numbers go: floats from one point, tile and panel of channels to the next.
struct Places {
    long long point, tile, panel;
};

// Bᵀ d B of each tile of a unit. `rows`: four rows of 2 tiles + 2 places.
inline void transform_images(const float* const* rows, long long tiles, long long padded, float* to, const Places& places) {
    for (long long t = 0; t < tiles; t++) {
        for (long long c0 = 0, panel = 0; c0 < padded; c0 += WIDTH, panel++) {
            float* out = to + t * places.tile + panel * places.panel;
            const float *r0 = rows[0] + 2 * t * padded + c0, *r1 = rows[1] + 2 * t * padded + c0;
            const float *r2 = rows[2] + 2 * t * padded + c0, *r3 = rows[3] + 2 * t * padded + c0;
            for (int v = 0; v < TILE_VECTORS; v++, r0 += LANES, r1 += LANES, r2 += LANES, r3 += LANES, out += LANES) {
                Vector d[4][4];
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) {
                    const Vector a = *(const Vector*)(r0 + j * padded), b = *(const Vector*)(r1 + j * padded);
                    const Vector c = *(const Vector*)(r2 + j * padded), e = *(const Vector*)(r3 + j * padded);
                    d[0][j] = a - c;
                    d[1][j] = b + c;
                    d[2][j] = c - b;
                    d[3][j] = b - e;
                }
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) {
                    float* point = out + 4 * i * places.point;
                    *(Vector*)point = d[i][0] - d[i][2];
                    *(Vector*)(point + places.point) = d[i][1] + d[i][2];
                    *(Vector*)(point + 2 * places.point) = d[i][2] - d[i][1];
                    *(Vector*)(point + 3 * places.point) = d[i][1] - d[i][3];
                }
            }
        }
    }
}

// A y Aᵀ of each tile of a unit, for gradients of outputs. `rows`: two rows of 2 tiles places.
inline void transform_gradients(const float* const* rows, long long tiles, long long padded, float* to, const Places& places) {
    for (long long t = 0; t < tiles; t++) {
        for (long long c0 = 0; c0 < padded; c0 += LANES) {
            float* out = to + t * places.tile + c0;
            const float *r0 = rows[0] + 2 * t * padded + c0, *r1 = rows[1] + 2 * t * padded + c0;
            Vector d[4][2];
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const Vector a = *(const Vector*)(r0 + j * padded), b = *(const Vector*)(r1 + j * padded);
                d[0][j] = a;
                d[1][j] = a + b;
                d[2][j] = a - b;
                d[3][j] = -b;
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                float* point = out + 4 * i * places.point;
                *(Vector*)point = d[i][0];
                *(Vector*)(point + places.point) = d[i][0] + d[i][1];
                *(Vector*)(point + 2 * places.point) = d[i][0] - d[i][1];
                *(Vector*)(point + 3 * places.point) = -d[i][1];
            }
        }
    }
}

// Four numbers from three by G = [1 0 0; ½ ½ ½; ½ -½ ½; 0 0 1].
inline void transform_three(float a, float b, float c, float* to, long long step) {
    const float sum = 0.5f * (a + c), half = 0.5f * b;
    to[0] = a;
    to[step] = sum + half;
    to[2 * step] = sum - half;
    to[3 * step] = c;
}

// G g Gᵀ of all windows as panels (point, panel of outputs, input, WIDTH); `window(output, input)` gives the nine numbers
// of a window, whose order is turned for the gradient of the images.
template <class F> inline void transform_weights(long long outputs, long long inputs, bool turned, float* to, const F& window) {
    const long long panels = (outputs + WIDTH - 1) / WIDTH, point = panels * inputs * WIDTH;
    parallel(panels * inputs, 16, [&](long long begin, long long end) {
        float numbers[9][WIDTH], half[12][WIDTH];
        for (long long at = begin; at < end; at++) {
            const long long first = at / inputs * WIDTH, input = at % inputs;
            const long long real = outputs - first < WIDTH ? outputs - first : WIDTH;
            for (int j = 0; j < WIDTH; j++) {
                const float* from = j < real ? window(first + j, input) : nullptr;
                for (int i = 0; i < 9; i++) numbers[i][j] = from ? from[turned ? 8 - i : i] : 0.0f;
            }
            float* out = to + at * WIDTH;
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < WIDTH; j++) transform_three(numbers[i][j], numbers[3 + i][j], numbers[6 + i][j], &half[i][j], 3 * WIDTH);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < WIDTH; j++) transform_three(half[3 * i][j], half[3 * i + 1][j], half[3 * i + 2][j], out + 4 * i * point + j, point);
        }
    });
}

// Four rows of images around each unit in turn: two of them stay for the unit below.
class RowReader {
  public:
    RowReader(const TiledImages& s, const float* images, long long pad_y, long long pad_x, Scratch& memory)
        : s_(s), images_(images), pad_y_(pad_y), pad_x_(pad_x), row_((2 * s.tiles_of_unit() + 2) * s.padded()), data_(memory.floats(4 * row_)) {}

    void read(const Unit& unit, const float** rows) {
        const bool below = s_.pieces == 1 && unit.sample == sample_ && unit.row == row_before_ + 1;
        for (long long i = 0; i < 4; i++) {
            float* to = data_ + (2 * unit.row + i) % 4 * row_;
            if (!below || i >= 2)
                read_row(s_, images_ + unit.sample * s_.channels * s_.height * s_.width, 2 * unit.row - pad_y_ + i, 2 * unit.first - pad_x_, 2 * unit.tiles + 2, to);
            rows[i] = to;
        }
        sample_ = unit.sample;
        row_before_ = unit.row;
    }

  private:
    const TiledImages& s_;
    const float* images_;
    long long pad_y_, pad_x_, row_;
    float* data_;
    long long sample_ = -1, row_before_ = -1;
};

// A sum is not finite where one of its numbers is not.
inline bool all_finite(const Vector& sums) {
    bool finite = true;
    for (int i = 0; i < LANES; i++) finite = finite && sums[i] - sums[i] == 0.0f;
    return finite;
}

// output (samples, outputs, out_height, out_width) from images and transformed weights. Whether all of it is finite.
inline bool winograd_images(const TiledImages& s, const float* images, long long pad_y, long long pad_x, const float* weights, long long outputs, const float* bias, long long out_height, long long out_width, float* output) {
    const long long padded = s.padded(), panels = (outputs + WIDTH - 1) / WIDTH, point = panels * s.channels * WIDTH;
    const long long together = s.units_of_block(), tiles = rounded_up(together * s.tiles_of_unit(), TILE_ROWS);
    const long long tile_step = padded + LANES;  // no power of two, for the sake of the first cache
    const Places places = {tiles * tile_step, tile_step, WIDTH};
    std::atomic<bool> finite{true};
    parallel((s.units() + together - 1) / together, 1, [&](long long begin, long long end) {
        static thread_local Scratch rows_memory, image_memory, product_memory;
        float* transformed = image_memory.floats(POINTS * tiles * tile_step);
        float* products = product_memory.floats(POINTS * tiles * WIDTH + 4 * s.tiles_of_unit() * WIDTH);
        float* lines = products + POINTS * tiles * WIDTH;
        RowReader reader(s, images, pad_y, pad_x, rows_memory);
        Vector sums[2] = {};  // of all outputs
        for (long long at = begin; at < end; at++) {
            const long long last = (at + 1) * together < s.units() ? (at + 1) * together : s.units();
            long long count = 0;
            for (long long u = at * together; u < last; u++) {
                const Unit unit(s, u);
                const float* rows[4];
                reader.read(unit, rows);
                transform_images(rows, unit.tiles, padded, transformed + count * tile_step, places);
                count += unit.tiles;
            }
            const long long some = rounded_up(count, TILE_ROWS);
            for (long long i = 0; i < POINTS; i++) memset(transformed + (i * tiles + count) * tile_step, 0, (some - count) * tile_step * 4);
            for (long long panel = 0; panel < panels; panel++) {
                for (long long i = 0; i < POINTS; i++)
                    for (long long k0 = 0; k0 < s.channels; k0 += DEPTH) {
                        const long long depth = s.channels - k0 < DEPTH ? s.channels - k0 : DEPTH;
                        const float* b = weights + i * point + (panel * s.channels + k0) * WIDTH;
                        for (long long t = 0; t < some; t += TILE_ROWS)
                            tile_of_steps(depth, transformed + (i * tiles + t) * tile_step + k0, tile_step, 1, b, products + (i * tiles + t) * WIDTH, WIDTH, k0 > 0);
                    }
                const long long first = panel * WIDTH, real = outputs - first < WIDTH ? outputs - first : WIDTH;
                const float* product = products;
                for (long long u = at * together; u < last; u++) {
                    const Unit unit(s, u);
                    const long long width = 2 * s.tiles_of_unit() * WIDTH;
                    for (long long t = 0; t < unit.tiles; t++, product += WIDTH)
                        for (int v = 0; v < WIDTH; v += LANES) {
                            Vector half[2][4];
#pragma GCC unroll 4
                            for (int j = 0; j < 4; j++) {
                                Vector m[4];
#pragma GCC unroll 4
                                for (int i = 0; i < 4; i++) m[i] = *(const Vector*)(product + (4 * i + j) * tiles * WIDTH + v);
                                half[0][j] = m[0] + m[1] + m[2];
                                half[1][j] = m[1] - m[2] - m[3];
                            }
#pragma GCC unroll 2
                            for (int i = 0; i < 2; i++) {
                                float* to = lines + i * width + 2 * t * WIDTH + v;
                                const Vector left = half[i][0] + half[i][1] + half[i][2], right = half[i][1] - half[i][2] - half[i][3];
                                *(Vector*)to = left;
                                *(Vector*)(to + WIDTH) = right;
                                sums[i] += left + right;
                            }
                        }
                    const long long x = 2 * unit.first, end_x = x + 2 * unit.tiles < out_width ? x + 2 * unit.tiles : out_width;
                    for (long long i = 0; i < 2; i++) {
                        const long long y = 2 * unit.row + i;
                        if (y >= out_height) break;
                        for (long long c = 0; c < real; c++) {
                            const float* from = lines + i * width + c;
                            float* to = output + ((unit.sample * outputs + first + c) * out_height + y) * out_width + x;
                            const float more = bias ? bias[first + c] : 0.0f;
                            for (long long p = 0; p < end_x - x; p++) to[p] = from[p * WIDTH] + more;
                        }
                    }
                }
            }
        }
        if (!all_finite(sums[0] + sums[1])) finite = false;
    });
    return finite;
}

inline void winograd_forward(const Convolution& s, const float* images, const float* weights, const float* bias, float* output) {
    Scratch memory;
    float* transformed = memory.floats(POINTS * rounded_up(s.outputs, WIDTH) * s.inputs);
    transform_weights(s.outputs, s.inputs, false, transformed, [=](long long o, long long c) { return weights + (o * s.inputs + c) * 9; });
    const TiledImages tiled(s.samples, s.inputs, s.height, s.width, s.out_height, s.out_width);
    if (!winograd_images(tiled, images, s.pad_y, s.pad_x, transformed, s.outputs, bias, s.out_height, s.out_width, output))
        convolution_forward(s, images, weights, bias, output);
}

inline void winograd_backward_images(const Convolution& s, const float* gradient, const float* weights, const float* bias, float* result) {
    Scratch memory;
    float* transformed = memory.floats(POINTS * rounded_up(s.inputs, WIDTH) * s.outputs);
    transform_weights(s.inputs, s.outputs, true, transformed, [=](long long c, long long o) { return weights + (o * s.inputs + c) * 9; });
    const TiledImages tiled(s.samples, s.outputs, s.out_height, s.out_width, s.height, s.width);
    if (!winograd_images(tiled, gradient, 2 - s.pad_y, 2 - s.pad_x, transformed, s.inputs, bias, s.height, s.width, result))
        convolution_backward_images(s, gradient, weights, bias, result);
}

// The gradient of the weights: at each point a product of all tiles' gradients and images.
class WinogradWeights {
  public:
    WinogradWeights(const Convolution& s, const float* gradient, const float* images)
        : s_(s), gradient_(gradient), images_(images), from_(s.samples, s.inputs, s.height, s.width, s.out_height, s.out_width),
          to_(s.samples, s.outputs, s.out_height, s.out_width, s.out_height, s.out_width), inputs_(from_.padded()),
          slope_step_(to_.padded() + LANES), rows_(rounded_up(s.outputs, TILE_ROWS)), point_(rows_ * inputs_) {}

    // Whether all of the result is finite.
    bool run(float* result) {
        const bool large = rows_ * inputs_ > 96 * 96;  // sums that do not stay in a thread's cache
        if (large) {
            sum_of_chunks();
        } else {
            sum_of_pieces();
        }
        return write(result);
    }

  private:
    const Convolution& s_;
    const float *gradient_, *images_;
    TiledImages from_, to_;
    long long inputs_, slope_step_, rows_, point_, pieces_ = 1;
    Scratch memory_;
    float* sums_ = nullptr;  // (piece, point, output, input)

    struct Block {
        float *images, *slopes;  // transformed: (point, panel, tile, WIDTH) and (point, tile, output)
        long long tiles;         // there is room for
    };

    long long place_of(const Unit& unit) const { return (unit.sample * from_.rows + unit.row) * from_.columns + unit.first; }

    void transform(const Unit& unit, RowReader& reader, RowReader& gradient_reader, const Block& block, long long at) const {
        const float* lines[4];
        reader.read(unit, lines);
        transform_images(lines, unit.tiles, inputs_, block.images + at * WIDTH, {block.tiles * inputs_, WIDTH, block.tiles * WIDTH});
        gradient_reader.read(unit, lines);
        transform_gradients(lines, unit.tiles, to_.padded(), block.slopes + at * slope_step_, {block.tiles * slope_step_, slope_step_, WIDTH});
    }

    // sum (output, input) = or += the products of `count` tiles at one point, for the outputs [first, last)
    void multiply(const Block& block, long long i, long long count, long long first, long long last, float* sum, bool add) const {
        for (long long k0 = 0; k0 < count; k0 += DEPTH) {
            const long long depth = count - k0 < DEPTH ? count - k0 : DEPTH;
            for (long long c = 0; c < inputs_; c += WIDTH)
                for (long long o = first; o < last; o += TILE_ROWS)
                    tile_of_steps(depth, block.slopes + (i * block.tiles + k0) * slope_step_ + o, 1, slope_step_, block.images + (i * inputs_ + c) * block.tiles + k0 * WIDTH, sum + o * inputs_ + c, inputs_, add || k0);
        }
    }

    // Each task has its own tiles and sums.
    void sum_of_pieces() {
        constexpr long long PIECES = 16;  // whatever the threads, so that the sums do not depend on their number
        const long long together = from_.units_of_block(), blocks = (from_.units() + together - 1) / together;
        const long long tiles = together * from_.tiles_of_unit();
        pieces_ = blocks < PIECES ? blocks : PIECES;
        sums_ = memory_.floats(pieces_ * POINTS * point_);
        parallel(pieces_, 1, [&](long long begin, long long end) {
            static thread_local Scratch rows_memory, gradient_rows_memory, image_memory, slope_memory;
            const Block block = {image_memory.floats(POINTS * tiles * inputs_), slope_memory.floats(POINTS * tiles * slope_step_), tiles};
            RowReader reader(from_, images_, s_.pad_y, s_.pad_x, rows_memory), gradient_reader(to_, gradient_, 0, 0, gradient_rows_memory);
            for (long long piece = begin; piece < end; piece++)
                for (long long at = piece * blocks / pieces_; at < (piece + 1) * blocks / pieces_; at++) {
                    const long long last = (at + 1) * together < from_.units() ? (at + 1) * together : from_.units();
                    long long count = 0;
                    for (long long u = at * together; u < last; u++) {
                        const Unit unit(from_, u);
                        transform(unit, reader, gradient_reader, block, count);
                        count += unit.tiles;
                    }
                    for (long long i = 0; i < POINTS; i++)
                        multiply(block, i, count, 0, rows_, sums_ + (piece * POINTS + i) * point_, at > piece * blocks / pieces_);
                }
        });
    }

    // All threads transform some tiles, then share out the points.
    void sum_of_chunks() {
        constexpr long long CHUNK = 1024, ROWS = 8 * TILE_ROWS;  // tiles; outputs of a task
        const long long units = from_.units(), together = CHUNK / from_.tiles_of_unit() < units ? CHUNK / from_.tiles_of_unit() : units;
        const long long tiles = together * from_.tiles_of_unit(), tasks = (rows_ + ROWS - 1) / ROWS;
        Scratch image_memory, slope_memory;
        const Block block = {image_memory.floats(POINTS * tiles * inputs_), slope_memory.floats(POINTS * tiles * slope_step_), tiles};
        sums_ = memory_.floats(POINTS * point_);
        for (long long first = 0; first < units; first += together) {
            const long long last = first + together < units ? first + together : units;
            const long long start = place_of(Unit(from_, first));
            parallel(last - first, from_.units_of_block(), [&](long long begin, long long end) {
                static thread_local Scratch rows_memory, gradient_rows_memory;
                RowReader reader(from_, images_, s_.pad_y, s_.pad_x, rows_memory), gradient_reader(to_, gradient_, 0, 0, gradient_rows_memory);
                for (long long u = first + begin; u < first + end; u++) {
                    const Unit unit(from_, u);
                    transform(unit, reader, gradient_reader, block, place_of(unit) - start);
                }
            });
            const Unit final_unit(from_, last - 1);
            const long long count = place_of(final_unit) + final_unit.tiles - start;
            parallel(POINTS * tasks, 1, [&](long long begin, long long end) {
                for (long long at = begin; at < end; at++) {
                    const long long i = at / tasks, o = at % tasks * ROWS;
                    multiply(block, i, count, o, o + ROWS < rows_ ? o + ROWS : rows_, sums_ + i * point_, first > 0);
                }
            });
        }
    }

    // Gᵀ m G, where m is the sum of all pieces
    bool write(float* result) const {
        std::atomic<bool> finite{true};
        parallel(s_.outputs, 4, [&](long long begin, long long end) {
            float windows[9][LANES];
            Vector sum = {};
            for (long long o = begin; o < end; o++)
                for (long long c0 = 0; c0 < s_.inputs; c0 += LANES) {
                    Vector m[POINTS], half[3][4];
                    for (int i = 0; i < POINTS; i++) {
                        m[i] = Vector{};
                        for (long long piece = 0; piece < pieces_; piece++)
                            m[i] += *(const Vector*)(sums_ + (piece * POINTS + i) * point_ + o * inputs_ + c0);
                    }
                    for (int j = 0; j < 4; j++) {
                        const Vector sum = 0.5f * (m[4 + j] + m[8 + j]);
                        half[0][j] = m[j] + sum;
                        half[1][j] = 0.5f * (m[4 + j] - m[8 + j]);
                        half[2][j] = sum + m[12 + j];
                    }
                    for (int i = 0; i < 3; i++) {
                        const Vector sum = 0.5f * (half[i][1] + half[i][2]);
                        *(Vector*)windows[3 * i] = half[i][0] + sum;
                        *(Vector*)windows[3 * i + 1] = 0.5f * (half[i][1] - half[i][2]);
                        *(Vector*)windows[3 * i + 2] = sum + half[i][3];
                    }
                    const long long real = s_.inputs - c0 < LANES ? s_.inputs - c0 : LANES;
                    for (long long c = 0; c < real; c++)
                        for (int i = 0; i < 9; i++) result[(o * s_.inputs + c0 + c) * 9 + i] = windows[i][c];
                    for (int i = 0; i < 9; i++) sum += *(const Vector*)windows[i];
                }
            if (!all_finite(sum)) finite = false;
        });
        return finite;
    }
};

inline void winograd_backward_weights(const Convolution& s, const float* gradient, const float* images, float* result) {
    if (!WinogradWeights(s, gradient, images).run(result)) convolution_backward_weights(s, gradient, images, result);
}

// Whether the algorithm fits, and saves more than its transformations cost.
inline bool winograd_fits(const Convolution& s) {
    const bool window = s.kernel_y == 3 && s.kernel_x == 3 && s.steps_of_one() && s.dilation_y == 1 && s.dilation_x == 1;
    return window && s.groups == 1 && s.inputs >= 16 && s.outputs >= 16 && s.out_height >= 4 && s.out_width >= 4 && s.pad_y <= 2 && s.pad_x <= 2;
}

}  // namespace ox
