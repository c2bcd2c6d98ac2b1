/* Prints the label of each line of a bundle's answers.jsonl, from its ids, with TensorFlow Lite's C functions.
 *
 *   labels BUNDLE/model.tflite BUNDLE/labels.txt < BUNDLE/answers.jsonl
 *
 * For classification without thresholds. Your app makes the ids from a text as tokenizer.json says. The functions
 * are those of tensorflow/lite/c/c_api.h; this file declares them, because not every library comes with headers.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 512, MOST_LABELS = 1000, MOST_LINE = 1 << 18 };
void* TfLiteModelCreateFromFile(const char* path);
void* TfLiteInterpreterOptionsCreate(void);
void TfLiteInterpreterOptionsAddDelegate(void* options, void* delegate);
void* TfLiteXNNPackDelegateCreate(const void* options);
void* TfLiteInterpreterCreate(const void* model, const void* options);
int32_t TfLiteInterpreterGetSignatureCount(const void* interpreter);
const char* TfLiteInterpreterGetSignatureKey(const void* interpreter, int32_t index);
void* TfLiteInterpreterGetSignatureRunner(const void* interpreter, const char* signature);
int TfLiteSignatureRunnerAllocateTensors(void* runner);
void* TfLiteSignatureRunnerGetInputTensor(void* runner, const char* name);
int TfLiteSignatureRunnerInvoke(void* runner);
const void* TfLiteSignatureRunnerGetOutputTensor(const void* runner, const char* name);
size_t TfLiteTensorByteSize(const void* tensor);
void* TfLiteTensorData(const void* tensor);

/* Ends the program with the name of the failed condition. */
#define MUST(holds) ((holds) ? (void)0 : (fprintf(stderr, "%s does not hold\n", #holds), exit(1)))

/* Reads the first array of numbers behind "name": into numbers; returns their count, 0 if the line has no such name. */
static int numbers_of(const char* line, const char* name, int32_t* numbers) {
  const char* at = strstr(line, name);
  if (at == NULL) return 0;
  at += strcspn(at, "[");
  int count = 0;
  while (*at == '[' || *at == ',') {
    MUST(count < MOST_TOKENS);
    char* end;
    numbers[count++] = (int32_t)strtol(at + 1, &end, 10);
    at = end + strspn(end, " ");
  }
  return count;
}

/* Returns the runner of the shortest length that fits, with its number of tokens. */
static void* runner_for(const void* interpreter, int tokens, int* length) {
  *length = MOST_TOKENS + 1;
  for (int32_t index = TfLiteInterpreterGetSignatureCount(interpreter); index-- > 0;) {
    int candidate = atoi(TfLiteInterpreterGetSignatureKey(interpreter, index) + strlen("length_"));
    if (candidate >= tokens && candidate < *length) *length = candidate;
  }
  char signature[32];
  snprintf(signature, sizeof signature, "length_%d", *length);
  return TfLiteInterpreterGetSignatureRunner(interpreter, signature);
}

static void fill(void* runner, const char* name, const int32_t* numbers, int length) {
  void* tensor = TfLiteSignatureRunnerGetInputTensor(runner, name);
  MUST(tensor != NULL && TfLiteTensorByteSize(tensor) == (size_t)length * sizeof *numbers);
  memcpy(TfLiteTensorData(tensor), numbers, (size_t)length * sizeof *numbers);
}

int main(int count, char** arguments) {
  static char line[MOST_LINE], labels[MOST_LABELS][256];
  MUST(count == 3);
  FILE* file = fopen(arguments[2], "r");
  MUST(file != NULL);
  for (int label = 0; label < MOST_LABELS && fscanf(file, " %255[^\n]", labels[label]) == 1;) ++label;
  void* options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsAddDelegate(options, TfLiteXNNPackDelegateCreate(NULL));
  void* interpreter = TfLiteInterpreterCreate(TfLiteModelCreateFromFile(arguments[1]), options);
  MUST(interpreter != NULL);
  while (fgets(line, sizeof line, stdin) != NULL) {
    /* No answer depends on what stands behind the tokens, where the mask is 0; see docs/reference/verification.md. */
    int32_t ids[MOST_TOKENS] = {0}, types[MOST_TOKENS] = {0}, mask[MOST_TOKENS] = {0};
    int length, best = 0, tokens = numbers_of(line, "\"ids\":", ids);
    numbers_of(line, "\"type_ids\":", types);
    for (int token = 0; token < tokens; ++token) mask[token] = 1;
    void* runner = runner_for(interpreter, tokens, &length);
    MUST(runner != NULL && TfLiteSignatureRunnerAllocateTensors(runner) == 0);
    fill(runner, "input_word_ids", ids, length);
    fill(runner, "input_mask", mask, length);
    fill(runner, "input_type_ids", types, length);
    MUST(TfLiteSignatureRunnerInvoke(runner) == 0);
    const void* output = TfLiteSignatureRunnerGetOutputTensor(runner, "logits");
    const float* logits = TfLiteTensorData(output);
    size_t classes = TfLiteTensorByteSize(output) / sizeof *logits;
    for (size_t label = 0; label < classes; ++label) best = logits[label] > logits[best] ? (int)label : best;
    double sum = 0;
    for (size_t label = 0; label < classes; ++label) sum += exp((double)logits[label] - logits[best]);
    printf("%s %.6f\n", labels[best], 1 / sum);
  }
  return 0;
}
