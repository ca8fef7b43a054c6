// Kernels of `detect`: a YOLO head's output becomes a fixed number of boxes, without overlaps of a class.
//
// `detect_decode`: a thread per anchor finds its best class; what reaches the threshold goes to the image's list, in
// any order. `detect_select`: a block per image takes the best CANDIDATES of the list (a radix selection, exact, since
// no two keys are equal), sorts them, and drops those that a better one of their class covers. The order of the list
// has no influence on the result.

#include "detect.cuh"

const int CANDIDATES = 1024; // and threads of `detect_select`

struct Head {
    int anchors, classes;
};

// YOLOv5 [anchors, 5 + classes] with an objectness; YOLOv8 and v11 [4 + classes, anchors] without.
template <typename In, bool IS_V8>
struct Prediction {
    const In *image;
    Head head;

    __device__ __forceinline__ float at(int anchor, int column) const {
        return to_float(IS_V8 ? image[(u64)column * head.anchors + anchor]
                              : image[(u64)anchor * (5 + head.classes) + column]);
    }

    __device__ __forceinline__ Box box(int anchor) const {
        return box_of(at(anchor, 0), at(anchor, 1), at(anchor, 2), at(anchor, 3));
    }
};

template <typename In, bool IS_V8>
__device__ __forceinline__ Prediction<In, IS_V8> prediction_of(const In *predictions, Head head, int image) {
    const u64 columns = (IS_V8 ? 4 : 5) + head.classes;
    return {predictions + (u64)image * columns * head.anchors, head};
}

// counts[2 * image] candidates so far, counts[2 * image + 1] anchors whose score or box is not a number.
template <typename In, bool IS_V8>
__device__ __forceinline__ void decode(const In *predictions, u64 *keys, int *counts, Head head, float threshold) {
    const int anchor = blockIdx.x * blockDim.x + threadIdx.x, image = blockIdx.y;
    if (anchor >= head.anchors) return;
    const Prediction<In, IS_V8> prediction = prediction_of<In, IS_V8>(predictions, head, image);
    const float objectness = IS_V8 ? 1.0f : prediction.at(anchor, 4);
    // No class can lift a small objectness above the threshold: most anchors end here.
    if (objectness < threshold && !IS_V8) return;
    float best = prediction.at(anchor, IS_V8 ? 4 : 5);
    int best_class = 0;
    bool is_number = !is_nan(best);
    for (int i = 1; i < head.classes; ++i) {
        const float score = prediction.at(anchor, (IS_V8 ? 4 : 5) + i);
        is_number = is_number && !is_nan(score);
        if (score > best) {
            best = score;
            best_class = i;
        }
    }
    const float score = best * objectness;
    if (is_number && score < threshold) return;
    const Box box = prediction.box(anchor);
    is_number = is_number && is_finite(score) && is_finite(box.left) && is_finite(box.top) && is_finite(box.right) &&
                is_finite(box.bottom);
    if (!is_number) {
        atomicAdd(&counts[2 * image + 1], 1);
        return;
    }
    keys[(u64)image * head.anchors + atomicAdd(&counts[2 * image], 1)] = candidate_key(score, anchor, best_class);
}

// The CANDIDATES-th largest of `count` different keys, eight bits at a time.
__device__ __forceinline__ u64 least_kept(const u64 *keys, int count) {
    __shared__ int histogram[256];
    __shared__ u64 prefix;
    __shared__ int wanted;
    if (threadIdx.x == 0) {
        prefix = 0;
        wanted = CANDIDATES;
    }
    for (int shift = 56; shift >= 0; shift -= 8) {
        if (threadIdx.x < 256) histogram[threadIdx.x] = 0;
        __syncthreads();
        const u64 above = shift == 56 ? 0 : prefix >> (shift + 8);
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const u64 key = keys[i];
            if ((shift == 56 ? 0 : key >> (shift + 8)) == above) atomicAdd(&histogram[(key >> shift) & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            for (; digit > 0 && histogram[digit] < wanted; --digit) wanted -= histogram[digit];
            prefix |= (u64)digit << shift;
        }
        __syncthreads();
    }
    return prefix;
}

// Descending; a bitonic network over CANDIDATES keys, a thread each.
__device__ __forceinline__ void sort_keys(u64 *kept) {
    const int mine = threadIdx.x;
    for (int size = 2; size <= CANDIDATES; size <<= 1) {
        for (int distance = size >> 1; distance > 0; distance >>= 1) {
            __syncthreads();
            const int other = mine ^ distance;
            if (other > mine) {
                const u64 one = kept[mine], two = kept[other];
                if ((one < two) == ((mine & size) == 0)) {
                    kept[mine] = two;
                    kept[other] = one;
                }
            }
        }
    }
    __syncthreads();
}

struct Detections {
    int *counts; // per image: boxes, and anchors that were not numbers
    float *boxes, *scores;
    int *classes;
    int limit;
};

__device__ __forceinline__ void write_detection(Detections out, int image, int slot, Box box, u64 key) {
    const u64 place = (u64)image * out.limit + slot;
    float *corners = out.boxes + 4 * place;
    corners[0] = box.left;
    corners[1] = box.top;
    corners[2] = box.right;
    corners[3] = box.bottom;
    out.scores[place] = key ? score_of_key(key) : 0.0f;
    out.classes[place] = key ? class_of_key(key) : -1;
}

template <typename In, bool IS_V8>
__device__ __forceinline__ void select(const In *predictions, const u64 *keys, const int *counts, Detections out, Head head,
                                       float iou_threshold) {
    __shared__ u64 kept[CANDIDATES];
    __shared__ Box boxes[CANDIDATES];
    __shared__ int is_dropped[CANDIDATES];
    __shared__ int taken;
    const int image = blockIdx.x, mine = threadIdx.x;
    const int count = counts[2 * image];
    keys += (u64)image * head.anchors;
    kept[mine] = count <= CANDIDATES && mine < count ? keys[mine] : 0;
    if (count > CANDIDATES) {
        const u64 least = least_kept(keys, count);
        if (mine == 0) taken = 0;
        __syncthreads();
        for (int i = mine; i < count; i += blockDim.x)
            if (keys[i] >= least) kept[atomicAdd(&taken, 1)] = keys[i];
    }
    sort_keys(kept);
    const int candidates = count < CANDIDATES ? count : CANDIDATES;
    const u64 key = kept[mine];
    Box box = {0.0f, 0.0f, 0.0f, 0.0f};
    if (key) box = prediction_of<In, IS_V8>(predictions, head, image).box(anchor_of_key(key));
    boxes[mine] = box;
    is_dropped[mine] = 0;
    __syncthreads();
    int slot = 0;
    for (int better = 0; better < candidates && slot < out.limit; ++better) {
        if (is_dropped[better]) continue;
        if (mine == better) write_detection(out, image, slot, box, key);
        ++slot;
        if (mine > better && mine < candidates && class_of_key(kept[better]) == class_of_key(key) &&
            overlaps(boxes[better], box, iou_threshold))
            is_dropped[mine] = 1;
        __syncthreads();
    }
    const Box none = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = slot + mine; i < out.limit; i += blockDim.x) write_detection(out, image, i, none, 0);
    if (mine == 0) {
        out.counts[2 * image] = slot;
        out.counts[2 * image + 1] = counts[2 * image + 1];
    }
}

#define DETECT_ENTRIES(NAME, IN, IS_V8)                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        detect_decode_##NAME(const IN *predictions, u64 *keys, int *counts, Head head, float threshold) {              \
        decode<IN, IS_V8>(predictions, keys, counts, head, threshold);                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) detect_select_##NAME(                                           \
        const IN *predictions, const u64 *keys, const int *counts, Detections out, Head head, float iou_threshold) {   \
        select<IN, IS_V8>(predictions, keys, counts, out, head, iou_threshold);                                        \
    }

DETECT_ENTRIES(yolov5_fp16, Half, false)
DETECT_ENTRIES(yolov5_fp32, float, false)
DETECT_ENTRIES(yolov8_fp16, Half, true)
DETECT_ENTRIES(yolov8_fp32, float, true)
