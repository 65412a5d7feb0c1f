// NCCL for ranks whose devices are memory of this machine: messages are files in a folder that the id names.
//
// All ranks send their arrays to each other, and reduce them in the order of ranks. A call returns when it is complete,
// so nothing of NCCL's asynchrony is shown. ncclCommAbort from another thread ends a call that waits for a rank.
// NCCL_HOST_ERROR=1: ncclCommGetAsyncError tells of an error.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

enum Type { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 };
enum Operation { SUM, PROD, MAX, MIN, AVG };
const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
const int ARGUMENT_ERROR = 4, REMOTE_ERROR = 6;
using Bytes = std::vector<char>;

struct Communicator {
    std::string folder;
    int size, rank, splits = 0;
    std::vector<int> sent, received;
    std::atomic<bool> aborted{false};

    std::string path(int from, int to, int number) const {
        return folder + "." + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number);
    }

    void send(const void* data, size_t bytes, int to) {
        std::string name = path(rank, to, sent[to]++);
        FILE* file = fopen((name + ".part").c_str(), "wb");
        fwrite(data, 1, bytes, file);
        fclose(file);
        rename((name + ".part").c_str(), name.c_str());
    }

    Bytes receive(size_t bytes, int from) {
        std::string name = path(from, rank, received[from]++);
        FILE* file;
        Bytes data(bytes);
        while (!(file = fopen(name.c_str(), "rb"))) {
            if (aborted) return data;
            usleep(50);
        }
        size_t count = fread(data.data(), 1, bytes, file);
        fclose(file);
        unlink(name.c_str());
        if (count != bytes) abort();  // the ranks disagree about a size
        return data;
    }

    std::vector<Bytes> exchange(const void* data, size_t bytes) {
        for (int to = 0; to < size; to++) send(data, bytes, to);
        std::vector<Bytes> found;
        for (int from = 0; from < size; from++) found.push_back(receive(bytes, from));
        return found;
    }
};

float from_half(uint16_t bits) { _Float16 value; memcpy(&value, &bits, 2); return value; }
uint16_t to_half(float value) { _Float16 half = value; uint16_t bits; memcpy(&bits, &half, 2); return bits; }
float from_bfloat16(uint16_t bits) { uint32_t wide = uint32_t(bits) << 16; float value; memcpy(&value, &wide, 4); return value; }
uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

template <class Number> Number combine(Number a, Number b, int operation) {
    if (operation == PROD) return a * b;
    if (operation == MAX) return a < b ? b : a;
    if (operation == MIN) return b < a ? b : a;
    return a + b;
}

template <class Stored, class Number, class Read, class Write>
void reduce_as(const std::vector<Bytes>& parts, size_t at, size_t count, int operation, void* out, Read read, Write write) {
    for (size_t i = 0; i < count; i++) {
        Number value = read(reinterpret_cast<const Stored*>(parts[0].data())[at + i]);
        for (size_t rank = 1; rank < parts.size(); rank++)
            value = combine<Number>(value, read(reinterpret_cast<const Stored*>(parts[rank].data())[at + i]), operation);
        if (operation == AVG) value = value / Number(parts.size());
        static_cast<Stored*>(out)[i] = write(value);
    }
}

template <class Number>
void reduce_plain(const std::vector<Bytes>& parts, size_t at, size_t count, int operation, void* out) {
    auto same = [](Number x) { return x; };
    reduce_as<Number, Number>(parts, at, count, operation, out, same, same);
}

int reduce(const std::vector<Bytes>& parts, size_t at, size_t count, int type, int operation, void* out) {
    if (operation < SUM || operation > AVG) return ARGUMENT_ERROR;
    switch (type) {
        case INT8: reduce_plain<int8_t>(parts, at, count, operation, out); return 0;
        case UINT8: reduce_plain<uint8_t>(parts, at, count, operation, out); return 0;
        case INT32: reduce_plain<int32_t>(parts, at, count, operation, out); return 0;
        case UINT32: reduce_plain<uint32_t>(parts, at, count, operation, out); return 0;
        case INT64: reduce_plain<int64_t>(parts, at, count, operation, out); return 0;
        case UINT64: reduce_plain<uint64_t>(parts, at, count, operation, out); return 0;
        case FLOAT32: reduce_plain<float>(parts, at, count, operation, out); return 0;
        case FLOAT64: reduce_plain<double>(parts, at, count, operation, out); return 0;
        case FLOAT16: reduce_as<uint16_t, float>(parts, at, count, operation, out, from_half, to_half); return 0;
        case BFLOAT16: reduce_as<uint16_t, float>(parts, at, count, operation, out, from_bfloat16, to_bfloat16); return 0;
    }
    return ARGUMENT_ERROR;
}

struct Receipt { Communicator* of; void* to; size_t bytes; int from; };
int group_depth = 0;
std::vector<Receipt> receipts;  // a group sends first, or two ranks would wait for each other

void take(const Receipt& one) {
    Bytes data = one.of->receive(one.bytes, one.from);
    memcpy(one.to, data.data(), one.bytes);
}

}  // namespace

extern "C" {

struct UniqueId { char bytes[128]; };

int ncclGetVersion(int* version) { *version = 23203; return 0; }

const char* ncclGetErrorString(int status) { return status == REMOTE_ERROR ? "remote process exited or there was a network error" : "error"; }

int ncclGetUniqueId(UniqueId* id) {
    static int made = 0;
    memset(id, 0, sizeof *id);
    const char* folder = getenv("TMPDIR");
    snprintf(id->bytes, sizeof id->bytes, "%s/nccl-%d-%d", folder ? folder : "/tmp", getpid(), made++);
    return 0;
}

int ncclCommInitRankConfig(Communicator** comm, int size, UniqueId id, int rank, void*) {
    *comm = new Communicator{id.bytes, size, rank, 0, std::vector<int>(size), std::vector<int>(size)};
    return 0;
}

int ncclCommInitAll(Communicator**, int, const int*) { return ARGUMENT_ERROR; }
int ncclCommSplit(Communicator*, int, int, Communicator**, void*) { return ARGUMENT_ERROR; }
int ncclCommDestroy(Communicator* comm) { delete comm; return 0; }
int ncclCommAbort(Communicator* comm) { comm->aborted = true; return 0; }  // a call may still use it
int ncclCommGetAsyncError(Communicator*, int* status) { *status = getenv("NCCL_HOST_ERROR") ? REMOTE_ERROR : 0; return 0; }
int ncclCommCount(Communicator* comm, int* size) { *size = comm->size; return 0; }
int ncclCommCuDevice(Communicator*, int* device) { *device = 0; return 0; }
int ncclCommUserRank(Communicator* comm, int* rank) { *rank = comm->rank; return 0; }
int ncclGroupStart() { group_depth++; return 0; }

int ncclGroupEnd() {
    if (--group_depth == 0) {
        for (const Receipt& one : receipts) take(one);
        receipts.clear();
    }
    return 0;
}

int ncclSend(const void* data, size_t count, int type, int to, Communicator* comm, void*) {
    comm->send(data, count * SIZES[type], to);
    return 0;
}

int ncclRecv(void* data, size_t count, int type, int from, Communicator* comm, void*) {
    Receipt one{comm, data, count * SIZES[type], from};
    if (group_depth) receipts.push_back(one);
    else take(one);
    return 0;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation, Communicator* comm, void*) {
    return reduce(comm->exchange(in, count * SIZES[type]), 0, count, type, operation, out);
}

int ncclReduce(const void* in, void* out, size_t count, int type, int operation, int root, Communicator* comm, void*) {
    std::vector<Bytes> parts = comm->exchange(in, count * SIZES[type]);
    return comm->rank == root ? reduce(parts, 0, count, type, operation, out) : 0;
}

int ncclReduceScatter(const void* in, void* out, size_t count, int type, int operation, Communicator* comm, void*) {
    std::vector<Bytes> parts = comm->exchange(in, count * comm->size * SIZES[type]);
    return reduce(parts, count * comm->rank, count, type, operation, out);
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Communicator* comm, void*) {
    memmove(out, comm->exchange(in, count * SIZES[type])[root].data(), count * SIZES[type]);
    return 0;
}

int ncclBcast(void* data, size_t count, int type, int root, Communicator* comm, void* stream) {
    return ncclBroadcast(data, data, count, type, root, comm, stream);
}

int ncclAllGather(const void* in, void* out, size_t count, int type, Communicator* comm, void*) {
    size_t bytes = count * SIZES[type];
    std::vector<Bytes> parts = comm->exchange(in, bytes);
    for (int rank = 0; rank < comm->size; rank++) memcpy(static_cast<char*>(out) + rank * bytes, parts[rank].data(), bytes);
    return 0;
}

}  // extern "C"
