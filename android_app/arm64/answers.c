/* Runs a bundle's calls with TensorFlow Lite for ARM64, for `tools/arm64_check.py`.
 *
 *   answers MODEL.tflite [WEIGHT_CACHE] < REQUESTS > ANSWERS
 *
 * The first line is the release. Each request is a line: signature, number of inputs, and for each input its name,
 * number of ids, and ids. Each answer is a line: number of outputs, and for each output its name, number of values, and
 * values.
 *
 * The presets' library has no headers, so this file declares the C functions it needs. Unlike the app's C++ interface,
 * the C interface does not attach XNNPACK by itself, so this program does.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct TfLiteModel TfLiteModel;
typedef struct TfLiteInterpreterOptions TfLiteInterpreterOptions;
typedef struct TfLiteInterpreter TfLiteInterpreter;
typedef struct TfLiteSignatureRunner TfLiteSignatureRunner;
typedef struct TfLiteTensor TfLiteTensor;
typedef struct TfLiteDelegate TfLiteDelegate;

TfLiteModel* TfLiteModelCreateFromFile(const char* path);
TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate(void);
void TfLiteInterpreterOptionsSetNumThreads(TfLiteInterpreterOptions*, int32_t threads);
void TfLiteInterpreterOptionsAddDelegate(TfLiteInterpreterOptions*, TfLiteDelegate*);
TfLiteDelegate* TfLiteXNNPackDelegateCreate(const void* options);
/* The app's helper, weight_cache.c. */
int64_t Java_org_pocketbert_app_CachingDelegate_create(void*, void*, int64_t path, int32_t threads);
TfLiteInterpreter* TfLiteInterpreterCreate(const TfLiteModel*, const TfLiteInterpreterOptions*);
TfLiteSignatureRunner* TfLiteInterpreterGetSignatureRunner(const TfLiteInterpreter*, const char* signature);
int TfLiteSignatureRunnerAllocateTensors(TfLiteSignatureRunner*);
TfLiteTensor* TfLiteSignatureRunnerGetInputTensor(TfLiteSignatureRunner*, const char* name);
int TfLiteSignatureRunnerInvoke(TfLiteSignatureRunner*);
size_t TfLiteSignatureRunnerGetOutputCount(const TfLiteSignatureRunner*);
const char* TfLiteSignatureRunnerGetOutputName(const TfLiteSignatureRunner*, int32_t index);
const TfLiteTensor* TfLiteSignatureRunnerGetOutputTensor(const TfLiteSignatureRunner*, const char* name);
size_t TfLiteTensorByteSize(const TfLiteTensor*);
void* TfLiteTensorData(const TfLiteTensor*);
const char* TfLiteVersion(void);

/* Ends the program with the name of the failed condition. */
#define MUST(holds) \
  do { \
    if (!(holds)) { \
      fprintf(stderr, "%s does not hold\n", #holds); \
      exit(1); \
    } \
  } while (0)

int main(int count, char** arguments) {
  MUST(count == 2 || count == 3);
  TfLiteModel* model = TfLiteModelCreateFromFile(arguments[1]);
  MUST(model != NULL);
  TfLiteInterpreterOptions* options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsSetNumThreads(options, 1);
  /* NULL selects the defaults, as in the C++ interface. */
  TfLiteDelegate* xnnpack =
      count == 2
          ? TfLiteXNNPackDelegateCreate(NULL)
          : (TfLiteDelegate*)Java_org_pocketbert_app_CachingDelegate_create(NULL, NULL, (int64_t)arguments[2], 1);
  MUST(xnnpack != NULL);
  TfLiteInterpreterOptionsAddDelegate(options, xnnpack);
  TfLiteInterpreter* interpreter = TfLiteInterpreterCreate(model, options);
  MUST(interpreter != NULL);
  printf("%s\n", TfLiteVersion());

  char signature[256], name[256];
  int inputs;
  while (scanf("%255s %d", signature, &inputs) == 2) {
    TfLiteSignatureRunner* runner = TfLiteInterpreterGetSignatureRunner(interpreter, signature);
    MUST(runner != NULL);
    MUST(TfLiteSignatureRunnerAllocateTensors(runner) == 0);
    while (inputs-- > 0) {
      size_t ids;
      MUST(scanf("%255s %zu", name, &ids) == 2);
      TfLiteTensor* input = TfLiteSignatureRunnerGetInputTensor(runner, name);
      MUST(input != NULL);
      MUST(TfLiteTensorByteSize(input) == ids * sizeof(int32_t));
      int32_t* data = TfLiteTensorData(input);
      for (size_t place = 0; place < ids; ++place) {
        MUST(scanf("%" SCNd32, &data[place]) == 1);
      }
    }
    /* instruction_count.c counts the instructions between two of these calls. */
    getppid();
    MUST(TfLiteSignatureRunnerInvoke(runner) == 0);
    getppid();
    size_t outputs = TfLiteSignatureRunnerGetOutputCount(runner);
    printf("%zu", outputs);
    for (size_t output = 0; output < outputs; ++output) {
      const char* of = TfLiteSignatureRunnerGetOutputName(runner, (int32_t)output);
      const TfLiteTensor* tensor = TfLiteSignatureRunnerGetOutputTensor(runner, of);
      MUST(tensor != NULL);
      size_t values = TfLiteTensorByteSize(tensor) / sizeof(float);
      const float* data = TfLiteTensorData(tensor);
      printf(" %s %zu", of, values);
      for (size_t place = 0; place < values; ++place) {
        /* Nine digits distinguish every float32 from its neighbours. */
        printf(" %.9g", data[place]);
      }
    }
    printf("\n");
  }
  return 0;
}
