/* A plug-in for QEMU's user mode: counts the ARM64 instructions of an inference.
 *
 * An inference is the work of the guest's only thread between two calls of getppid by `answers.c`. For each inference,
 * it writes a line `instructions ALL VECTOR` to standard error; VECTOR counts those of the floating-point and vector unit.
 *
 * Debian's qemu-user has no header for plug-ins, so this file declares the functions it needs (interface version 1).
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*on_translation)(qemu_plugin_id_t, struct qemu_plugin_tb*);
typedef void (*on_call)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t);
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, on_translation);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, on_call);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
const void* qemu_plugin_insn_data(const struct qemu_plugin_insn*);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, enum qemu_plugin_op, void* counter, uint64_t step);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* System call number of getppid on ARM64 Linux. */
static const int64_t GETPPID = 173;
static uint64_t all, vector, all_before, vector_before;
static int inside;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb* block) {
  (void)id;
  size_t count = qemu_plugin_tb_n_insns(block), vectors = 0;
  for (size_t place = 0; place < count; ++place) {
    uint32_t word = *(const uint32_t*)qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, place));
    /* Bits 25 to 28 encode the kind of instruction: x111 is arithmetic of that unit. */
    vectors += ((word >> 25) & 7) == 7;
  }
  qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &all, count);
  if (vectors) {
    qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &vector, vectors);
  }
}

static void called(qemu_plugin_id_t id, unsigned processor, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                   uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  (void)id, (void)processor, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
  if (number != GETPPID) {
    return;
  }
  if (inside) {
    fprintf(stderr, "instructions %" PRIu64 " %" PRIu64 "\n", all - all_before, vector - vector_before);
  }
  inside = !inside;
  all_before = all;
  vector_before = vector;
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void* info, int count,
                                                               char** arguments) {
  (void)info, (void)count, (void)arguments;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
