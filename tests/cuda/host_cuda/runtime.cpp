// The CUDA runtime on the host, where device memory is host memory. A Python module: `replace` puts these functions in the
// place of those that CuPy's module `cupy_backends.cuda.api.runtime` gives to its other modules (`__pyx_capi__`).
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <initializer_list>
#include <set>

#include "work.h"

namespace {
using Address = intptr_t;
enum CopyKind { TO_DEVICE_KIND = 1, TO_HOST_KIND = 2 };

constexpr int NOT_READY = 600;  // cudaErrorNotReady

PyObject *error_class, *attributes_class, *properties;
int capability = 90;
size_t total_memory;
std::atomic<size_t> used_memory;

PyObject* failed(int status) {
    PyObject* error = PyObject_CallFunction(error_class, "i", status);
    if (error) PyErr_SetObject(error_class, error);
    Py_XDECREF(error);
    return nullptr;
}

PyObject* done() { Py_RETURN_NONE; }
PyObject* waited() {
    const int status = host_cuda_wait();
    return status ? failed(status) : done();
}

struct Copy {
    Address to, from;
    size_t size;
    int kind;
    static void run(void* copy) {
        const Copy& c = *static_cast<const Copy*>(copy);
        if (c.kind == TO_DEVICE_KIND) host_cuda_counts[BYTES_TO_DEVICE] += c.size;
        if (c.kind == TO_HOST_KIND) host_cuda_counts[BYTES_TO_HOST] += c.size;
        memmove(reinterpret_cast<void*>(c.to), reinterpret_cast<void*>(c.from), c.size);
    }
};
PyObject* copy_later(Address to, Address from, size_t size, int kind, Address, int) {
    const Copy copy{to, from, size, kind};
    host_cuda_submit(Copy::run, &copy, sizeof copy, kind == TO_DEVICE_KIND ? TO_DEVICE : kind == TO_HOST_KIND ? TO_HOST : ON_DEVICE);
    return done();
}
PyObject* copy(Address to, Address from, size_t size, int kind, int) {
    PyObject* result = waited();
    if (result) copy_later(to, from, size, kind, 0, 0);
    return result;
}

struct Fill {
    Address to;
    int value;
    size_t size;
    static void run(void* fill) {
        const Fill& f = *static_cast<const Fill*>(fill);
        memset(reinterpret_cast<void*>(f.to), f.value, f.size);
    }
};
PyObject* fill(Address to, int value, size_t size, int) {
    const Fill work{to, value, size};
    host_cuda_submit(Fill::run, &work, sizeof work, FILLS);
    return done();
}
PyObject* fill_later(Address to, int value, size_t size, Address, int) { return fill(to, value, size, 0); }

Address allocate(size_t size, int) {
    if (used_memory + size > total_memory) return failed(2), 0;  // cudaErrorMemoryAllocation
    void* made = host_cuda_allocate(size);
    if (!made) return failed(2), 0;
    used_memory += size;
    return reinterpret_cast<Address>(made);
}
Address allocate_later(size_t size, Address, int) { return allocate(size, 0); }
Address allocate_managed(size_t size, int, void*) { return allocate(size, 0); }
Address allocate_host(size_t size, unsigned, int) {
    void* made = nullptr;
    if (posix_memalign(&made, ALIGNMENT, size ? size : 1)) return failed(2), 0;
    memset(made, NOT_A_NUMBER, size);
    return reinterpret_cast<Address>(made);
}
PyObject* forget(Address memory, int) { return free(reinterpret_cast<void*>(memory)), done(); }
PyObject* release(Address memory, int) { return used_memory -= host_cuda_release(reinterpret_cast<void*>(memory)), done(); }
PyObject* release_later(Address memory, Address, int) { return release(memory, 0); }

double milliseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

// Of a stream, or of an event, which has the time of the host when it was recorded.
Address handle(int) { return reinterpret_cast<Address>(calloc(1, sizeof(double))); }
Address handle_with_flags(unsigned, int) { return handle(0); }

// Streams that were destroyed; under the GIL. Who still uses one gets the error that CUDA gives for most of them.
std::set<Address> destroyed;
constexpr int INVALID_HANDLE = 400;  // cudaErrorInvalidResourceHandle
bool is_gone(Address stream) {
    const bool gone = destroyed.count(stream);
    if (gone) failed(INVALID_HANDLE);
    return gone;
}
Address make_stream(int) {
    const Address made = handle(0);
    destroyed.erase(made);
    return made;
}
Address make_stream_with_flags(unsigned, int) { return make_stream(0); }
Address make_stream_with_priority(unsigned, int, int) { return make_stream(0); }
PyObject* destroy_stream(Address stream, int) {
    if (is_gone(stream)) return nullptr;
    destroyed.insert(stream);
    return forget(stream, 0);
}
PyObject* wait_for_stream(Address stream, int) { return is_gone(stream) ? nullptr : waited(); }
PyObject* wait_for(Address, int) { return waited(); }
PyObject* wait_for_device(int) { return waited(); }
PyObject* record_event(Address event, Address stream, int) {
    if (is_gone(stream)) return nullptr;
    return *reinterpret_cast<double*>(event) = milliseconds(), done();
}
PyObject* wait_on_device(Address stream, Address, int, void*) { return is_gone(stream) ? nullptr : done(); }
PyObject* query(Address, int) { return PyLong_FromLong(host_cuda_busy ? NOT_READY : SUCCESS); }
float elapsed(Address start, Address end, int) {
    return static_cast<float>(*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(start));
}

PyObject* begin_capture(Address, int, void*) { return host_cuda_begin_capture(), done(); }
Address end_capture(Address, int) {
    void* graph = host_cuda_end_capture();
    if (!graph) failed(CAPTURE_INVALIDATED);
    return reinterpret_cast<Address>(graph);
}
int is_capturing(Address stream, int) { return is_gone(stream) ? -1 : host_cuda_capturing; }
Address instantiate(Address graph, int) { return graph; }
PyObject* launch(Address graph, Address, int) { return host_cuda_launch_graph(reinterpret_cast<void*>(graph)), done(); }
PyObject* upload(Address, Address, int) { return done(); }
PyObject* keep_graph(Address, int) { return done(); }  // the executable graph is the same object
PyObject* free_graph(Address graph, int) { return host_cuda_free_graph(reinterpret_cast<void*>(graph)), done(); }

int current_device(int) { return host_cuda_device; }
int device_count(int) { return host_cuda_devices; }
PyObject* set_device(int device, int) {
    if (device < 0 || device >= host_cuda_devices) return failed(101);  // cudaErrorInvalidDevice
    return host_cuda_device = device, done();
}
PyObject* current_in_python(PyObject*, PyObject*) { return PyLong_FromLong(host_cuda_device); }
PyObject* set_in_python(PyObject*, PyObject* device) { return set_device(PyLong_AsLong(device), 0); }
int zero(int) { return 0; }
int zero_of(Address, int) { return 0; }
unsigned no_flags(Address, int) { return 0; }
int version(int) { return 13000; }
int major(int) { return 13; }
int no_peer(int, int, int) { return 0; }
PyObject* none_of(int, int) { return done(); }
PyObject* none(int) { return done(); }
PyObject* context() { return done(); }
PyObject* free_and_total(int) {
    if (host_cuda_lost) return failed(host_cuda_lost);
    return Py_BuildValue("(nn)", static_cast<Py_ssize_t>(total_memory - used_memory), static_cast<Py_ssize_t>(total_memory));
}
PyObject* free_and_total_in_python(PyObject*, PyObject*) { return free_and_total(0); }
PyObject* query_in_python(PyObject*, PyObject*) { return query(0, 0); }
PyObject* device_properties(int, int) { return PyDict_Copy(properties); }
int memory_type(Address, int) { return 2; }
PyObject* pointer_attributes(Address pointer, int) { return PyObject_CallFunction(attributes_class, "inni", host_cuda_device_of(reinterpret_cast<void*>(pointer)), pointer, Py_ssize_t{0}, 2); }
PyObject* attributes_in_python(PyObject*, PyObject* address) {
    const Address pointer = PyLong_AsSsize_t(address);
    return PyErr_Occurred() ? nullptr : pointer_attributes(pointer, 0);
}
int attribute(int number, int, int) {
    switch (number) {  // cudaDeviceAttr
        case 1: return 1024;  // threads of a block
        case 8: return 49152;  // bytes of shared memory of a block
        case 10: return 32;  // threads of a warp
        case 16: return 132;  // multiprocessors
        case 39: return 2048;  // threads of a multiprocessor
        case 75: return capability / 10;
        case 76: return capability % 10;
        case 97: return 232448;  // bytes of shared memory that a block may ask for
        case 115: return 0;  // memory pools
        default: return 1;
    }
}

template <class F> void* pointer(F* function) { return reinterpret_cast<void*>(function); }
const struct {
    const char* name;
    void* function;
} FUNCTIONS[] = {
    {"memcpy", pointer(copy)}, {"memcpyAsync", pointer(copy_later)}, {"memset", pointer(fill)}, {"memsetAsync", pointer(fill_later)},
    {"malloc", pointer(allocate)}, {"mallocAsync", pointer(allocate_later)}, {"mallocManaged", pointer(allocate_managed)},
    {"hostAlloc", pointer(allocate_host)}, {"free", pointer(release)}, {"freeHost", pointer(forget)}, {"freeAsync", pointer(release_later)},
    {"eventCreate", pointer(handle)}, {"eventCreateWithFlags", pointer(handle_with_flags)}, {"eventDestroy", pointer(forget)},
    {"eventRecord", pointer(record_event)}, {"eventQuery", pointer(query)}, {"eventSynchronize", pointer(wait_for)},
    {"eventElapsedTime", pointer(elapsed)}, {"streamCreate", pointer(make_stream)}, {"streamCreateWithFlags", pointer(make_stream_with_flags)},
    {"streamCreateWithPriority", pointer(make_stream_with_priority)}, {"streamDestroy", pointer(destroy_stream)}, {"streamQuery", pointer(query)},
    {"streamSynchronize", pointer(wait_for_stream)}, {"streamWaitEvent", pointer(wait_on_device)}, {"streamGetFlags", pointer(no_flags)},
    {"streamGetPriority", pointer(zero_of)}, {"streamIsCapturing", pointer(is_capturing)}, {"streamBeginCapture", pointer(begin_capture)},
    {"streamEndCapture", pointer(end_capture)}, {"graphInstantiate", pointer(instantiate)}, {"graphLaunch", pointer(launch)},
    {"graphUpload", pointer(upload)}, {"graphDestroy", pointer(keep_graph)}, {"graphExecDestroy", pointer(free_graph)},
    {"deviceSynchronize", pointer(wait_for_device)}, {"getDevice", pointer(current_device)}, {"getDeviceCount", pointer(device_count)},
    {"setDevice", pointer(set_device)}, {"getDeviceProperties", pointer(device_properties)}, {"deviceGetAttribute", pointer(attribute)},
    {"deviceCanAccessPeer", pointer(no_peer)}, {"deviceEnablePeerAccess", pointer(none_of)}, {"_deviceEnsurePeerAccess", pointer(none_of)},
    {"driverGetVersion", pointer(version)}, {"runtimeGetVersion", pointer(version)}, {"_getCUDAMajorVersion", pointer(major)},
    {"memGetInfo", pointer(free_and_total)}, {"pointerGetAttributes", pointer(pointer_attributes)},
    {"pointerGetMemoryType", pointer(memory_type)}, {"profilerStart", pointer(none)}, {"profilerStop", pointer(none)},
    {"_ensure_context", pointer(context)},
};

// replace(functions, properties, error class, attributes class, capability, bytes, devices): `functions` has a capsule for each name
PyObject* replace(PyObject*, PyObject* arguments) {
    PyObject* capsules;
    if (!PyArg_ParseTuple(arguments, "OOOOini", &capsules, &properties, &error_class, &attributes_class, &capability, &total_memory,
                          &host_cuda_devices))
        return nullptr;
    for (PyObject* kept : {properties, error_class, attributes_class}) Py_INCREF(kept);
    for (const auto& [name, function] : FUNCTIONS) {
        PyObject* old = PyDict_GetItemString(capsules, name);
        if (!old) return PyErr_Format(PyExc_KeyError, "CuPy's runtime has no %s", name);
        Py_INCREF(old);  // which has the text of the signature
        PyObject* capsule = PyCapsule_New(function, PyCapsule_GetName(old), nullptr);
        if (!capsule || PyDict_SetItemString(capsules, name, capsule)) return nullptr;
        Py_DECREF(capsule);
    }
    return done();
}

PyMethodDef METHODS[] = {
    {"replace", replace, METH_VARARGS, nullptr},
    {"memGetInfo", free_and_total_in_python, METH_NOARGS, nullptr},
    {"pointerGetAttributes", attributes_in_python, METH_O, nullptr},
    {"query", query_in_python, METH_VARARGS, nullptr},
    {"getDevice", current_in_python, METH_NOARGS, nullptr},
    {"setDevice", set_in_python, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "host_cuda_runtime", nullptr, -1, METHODS, nullptr, nullptr, nullptr, nullptr};
}  // namespace

PyMODINIT_FUNC PyInit_host_cuda_runtime() { return PyModule_Create(&MODULE); }
