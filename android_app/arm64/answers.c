/* Answers a bundle's calls with the ARM64 code of TensorFlow Lite, for `tools/arm64_check.py`.
 *
 *   answers MODEL.tflite < REQUESTS > ANSWERS
 *
 * First comes a line with the release. A request is a line: signature, how many inputs, and of each its name, how many
 * ids, and the ids. Its answer is a line: how many outputs, and of each its name, how many values, and the values.
 *
 * The presets' library comes without headers, so what is used of TensorFlow Lite's C interface is declared here. That
 * interface attaches no XNNPACK by itself, as the C++ one of the app does, so it is made here.
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

/* Every call that fails ends the program with the name of what failed. */
#define MUST(holds) \
  do { \
    if (!(holds)) { \
      fprintf(stderr, "%s does not hold\n", #holds); \
      exit(1); \
    } \
  } while (0)

int main(int count, char** arguments) {
  MUST(count == 2);
  TfLiteModel* model = TfLiteModelCreateFromFile(arguments[1]);
  MUST(model != NULL);
  TfLiteInterpreterOptions* options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsSetNumThreads(options, 1);
  /* No options are its defaults, which the C++ interface takes too. */
  TfLiteDelegate* xnnpack = TfLiteXNNPackDelegateCreate(NULL);
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
    /* instruction_count.c counts what lies between two of these. */
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
        /* Nine digits tell every float32 from its neighbours. */
        printf(" %.9g", data[place]);
      }
    }
    printf("\n");
  }
  return 0;
}
