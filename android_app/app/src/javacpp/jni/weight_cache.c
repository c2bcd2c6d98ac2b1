/* Creates XNNPACK with a weight cache. The JavaCPP presets have no interface for these functions.
 *
 * The presets have no headers either, so this file declares what it needs from TensorFlow Lite 2.21. It needs no C
 * library, like affinity.c. tools/arm64_check.py runs it with the ARM64 library.
 */
#include <stdint.h>

/* TfLiteXNNPackDelegateOptions in tensorflow/lite/delegates/xnnpack/xnnpack_delegate.h. */
struct options {
  int32_t num_threads;
  uint32_t runtime_flags;
  uint32_t flags;
  void *weights_cache;
  _Bool handle_variable_ops;
  const char *weight_cache_file_path;
  int weight_cache_file_descriptor;
  void *weight_cache_provider;
  /* Room for members of other releases. */
  char later[32];
};

struct options TfLiteXNNPackDelegateOptionsDefault(void);
void *TfLiteXNNPackDelegateCreate(const struct options *options);
void TfLiteXNNPackDelegateDelete(void *delegate);

/* The path must stay where it is until the delegate is deleted. Returns its address, or 0. */
__attribute__((visibility("default"))) int64_t Java_org_pocketbert_app_CachingDelegate_create(
    void *environment, void *type, int64_t path, int32_t threads) {
  (void)environment;
  (void)type;
  struct options options = TfLiteXNNPackDelegateOptionsDefault();
  options.num_threads = threads;
  options.weight_cache_file_path = (const char *)path;
  return (int64_t)TfLiteXNNPackDelegateCreate(&options);
}

__attribute__((visibility("default"))) void Java_org_pocketbert_app_CachingDelegate_delete(
    void *environment, void *type, int64_t delegate) {
  (void)environment;
  (void)type;
  TfLiteXNNPackDelegateDelete((void *)delegate);
}
