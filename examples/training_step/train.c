// train step.onnx batches.safetensors 0.01 [trained.safetensors]
//
// Trains on arrays [steps, batch, ...] at one learning rate and prints the loss of each step. Needs the C library of
// ONNX Runtime: cc train.c -I <headers> -L <library> -lonnxruntime -o train

#include <onnxruntime_c_api.h>
#include <stdio.h>

#define MOST 4096  // tensors of a file, inputs and outputs of a graph

typedef struct {
  char name[256];
  int kind, rank;  // of KINDS
  int64_t shape[8];
  size_t bytes;
  char* data;
} Array;

static const struct { const char* name; ONNXTensorElementDataType type; } KINDS[] = {
    {"F32", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT}, {"F64", ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {"I64", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64}, {"U64", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {"I32", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
};

static const OrtApi* ort;
static OrtMemoryInfo* memory;

static void stop(const char* why) {
  fprintf(stderr, "%s\n", why);
  exit(1);
}

static void check(OrtStatus* status) {
  if (status) stop(ort->GetErrorMessage(status));
}

// The end of the JSON value at `p`; braces inside of strings do not count.
static char* skip(char* p) {
  int depth = 0;
  do {
    if (*p == '"')
      for (p++; *p != '"'; p++) p += *p == '\\';
    depth += (*p == '{') - (*p == '}');
    p++;
  } while (depth);
  return p;
}

// The arrays of a safetensors file: the length of a JSON header, the header, the numbers.
static int read_state(const char* path, Array* arrays) {
  FILE* file = fopen(path, "rb");
  if (!file) stop(path);
  fseek(file, 0, SEEK_END);
  size_t size = ftell(file);
  rewind(file);
  char* content = malloc(size + 1);
  if (fread(content, 1, size, file) != size) stop(path);
  fclose(file);
  uint64_t length;
  memcpy(&length, content, 8);
  char* data = content + 8 + length;
  char* header = calloc(length + 1, 1);
  memcpy(header, content + 8, length);
  int count = 0;
  for (char* p = strchr(header, '"'); p; p = strchr(p, '"')) {
    char* name = p + 1;
    char* end = strchr(name, '"');
    p = skip(strchr(end, '{'));
    if (!strncmp(name, "__metadata__", end - name)) continue;
    Array* a = &arrays[count++];
    memset(a, 0, sizeof *a);
    memcpy(a->name, name, end - name);
    char* dtype = strchr(strstr(end, "\"dtype\""), ':') + 1;
    for (dtype += strspn(dtype, " \""); strncmp(dtype, KINDS[a->kind].name, 3); a->kind++)
      if (a->kind == 4) stop("an element type that this program does not have");
    for (char* s = strchr(strstr(end, "\"shape\""), '[') + 1; *s != ']'; s += *s == ',' || *s == ' ')
      a->shape[a->rank++] = strtoll(s, &s, 10);
    char* place = strchr(strstr(end, "\"data_offsets\""), '[') + 1;
    size_t first = strtoull(place, &place, 10), last = strtoull(place + 1, NULL, 10);
    a->data = data + first;
    a->bytes = last - first;
  }
  free(header);
  return count;
}

static OrtValue* tensor(const Array* a, char* data, size_t bytes, const int64_t* shape, int rank) {
  OrtValue* value;
  check(ort->CreateTensorWithDataAsOrtValue(memory, data, bytes, shape, rank, KINDS[a->kind].type, &value));
  return value;
}

// The same file, with the numbers of `values`, which have the shapes of `arrays`.
static void write_state(const char* path, const Array* arrays, OrtValue** values, int count) {
  FILE* file = fopen(path, "wb");
  if (!file) stop(path);
  char* header = calloc(count, 1024);
  size_t length = 0, place = 0;
  for (int i = 0; i < count; i++) {
    length += sprintf(header + length, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "{", arrays[i].name,
                      KINDS[arrays[i].kind].name);
    for (int k = 0; k < arrays[i].rank; k++)
      length += sprintf(header + length, "%s%lld", k ? "," : "", (long long)arrays[i].shape[k]);
    length += sprintf(header + length, "],\"data_offsets\":[%zu,%zu]}", place, place + arrays[i].bytes);
    place += arrays[i].bytes;
  }
  header[length++] = '}';
  while (length % 8) header[length++] = ' ';
  uint64_t size = length;
  fwrite(&size, 8, 1, file);
  fwrite(header, 1, length, file);
  for (int i = 0; i < count; i++) {
    void* data;
    check(ort->GetTensorMutableData(values[i], &data));
    fwrite(data, 1, arrays[i].bytes, file);
  }
  fclose(file);
  free(header);
}

int main(int argc, char** argv) {
  if (argc < 4) stop("train step.onnx batches.safetensors 0.01 [trained.safetensors]");
  static Array state[MOST], batches[MOST];
  static char *names[MOST], *outputs[MOST];
  static OrtValue *values[MOST], *results[MOST], *feed[MOST];
  ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (!ort) stop("the library of ONNX Runtime is older than its headers");

  char path[4096];
  snprintf(path, sizeof path, "%s", argv[1]);
  strcpy(strrchr(path, '.'), ".safetensors");
  int held = read_state(path, state), parts = read_state(argv[2], batches);
  float rate = strtof(argv[3], NULL);

  OrtEnv* env;
  OrtSessionOptions* options;
  OrtSession* session;
  OrtAllocator* allocator;
  check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "train", &env));
  check(ort->CreateSessionOptions(&options));
  check(ort->CreateSession(env, argv[1], options, &session));
  check(ort->GetAllocatorWithDefaultOptions(&allocator));
  check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  size_t reads, writes;
  check(ort->SessionGetInputCount(session, &reads));
  check(ort->SessionGetOutputCount(session, &writes));
  for (size_t i = 0; i < reads; i++) check(ort->SessionGetInputName(session, i, allocator, &names[i]));
  for (size_t i = 0; i < writes; i++) check(ort->SessionGetOutputName(session, i, allocator, &outputs[i]));
  for (int i = 0; i < held; i++) values[i] = tensor(&state[i], state[i].data, state[i].bytes, state[i].shape, state[i].rank);

  Array lr = {.kind = 0};
  for (int64_t step = 0; step < batches[0].shape[0]; step++) {
    for (size_t i = 0; i < reads; i++) {
      feed[i] = strncmp(names[i], "lr", 2) ? NULL : tensor(&lr, (char*)&rate, sizeof rate, NULL, 0);
      for (int k = 0; k < parts; k++) {
        size_t bytes = batches[k].bytes / batches[k].shape[0];
        if (!strcmp(names[i], batches[k].name))
          feed[i] = tensor(&batches[k], batches[k].data + step * bytes, bytes, batches[k].shape + 1, batches[k].rank - 1);
      }
      for (int k = 0; k < held; k++)
        if (!strcmp(names[i], state[k].name)) feed[i] = values[k];
      if (!feed[i]) stop(names[i]);
      results[i] = NULL;
    }
    memset(results, 0, sizeof results);
    check(ort->Run(session, NULL, (const char* const*)names, (const OrtValue* const*)feed, reads,
                   (const char* const*)outputs, writes, results));
    for (size_t i = 0; i < writes; i++) {
      size_t stem = strlen(outputs[i]) > 5 ? strlen(outputs[i]) - 5 : 0;
      int next = 0;
      for (int k = 0; k < held; k++)  // the input X goes on as the output X.next
        if (stem == strlen(state[k].name) && !strncmp(outputs[i], state[k].name, stem)) {
          ort->ReleaseValue(values[k]);
          values[k] = results[i];
          next = 1;
        }
      if (next) continue;
      float* number;
      check(ort->GetTensorMutableData(results[i], (void**)&number));
      if (!strcmp(outputs[i], "loss")) printf("%lld loss %.6f\n", (long long)step + 1, *number);
      ort->ReleaseValue(results[i]);
    }
    for (size_t i = 0; i < reads; i++) {
      int is_state = 0;
      for (int k = 0; k < held; k++) is_state |= !strcmp(names[i], state[k].name);
      if (!is_state) ort->ReleaseValue(feed[i]);
    }
  }
  if (argc > 4) write_state(argv[4], state, values, held);
  return 0;
}
