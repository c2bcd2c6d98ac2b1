/* Sets the processors of a thread with a Linux system call, which Java cannot make.
 *
 * It needs neither the NDK nor a C library, so any clang with arm64 support can build it.
 */
#include <stdint.h>

enum { SCHED_SETAFFINITY = 122 }; /* arm64's number */

/* Thread 0 is the calling one. Returns 0, or the system's error number with a minus sign. */
__attribute__((visibility("default"))) int32_t Java_org_pocketbert_app_Affinity_set(
    void *environment, void *type, int64_t processors) {
  (void)environment;
  (void)type;
  uint64_t mask = (uint64_t)processors;
  register int64_t number __asm__("x8") = SCHED_SETAFFINITY;
  register int64_t result __asm__("x0") = 0;
  register uint64_t size __asm__("x1") = sizeof mask;
  register uint64_t *address __asm__("x2") = &mask;
  __asm__ volatile("svc #0" : "+r"(result) : "r"(number), "r"(size), "r"(address) : "memory");
  return (int32_t)result;
}
