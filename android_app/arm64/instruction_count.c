/* A plug-in of QEMU's user mode: how many ARM64 instructions an inference takes.
 *
 * An inference is what the guest's only thread does between two calls of getppid, which `answers.c` makes. For each one a
 * line `instructions ALL VECTOR` goes to standard error; VECTOR are those of the floating-point and vector unit.
 *
 * Debian's qemu-user comes without the plug-in's header, so what is used of its interface (version 1) is declared here.
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

/* Linux's number of getppid on ARM64. */
static const int64_t GETPPID = 173;
static uint64_t all, vector, all_before, vector_before;
static int inside;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb* block) {
  (void)id;
  size_t count = qemu_plugin_tb_n_insns(block), vectors = 0;
  for (size_t place = 0; place < count; ++place) {
    uint32_t word = *(const uint32_t*)qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, place));
    /* Bits 25 to 28 say what kind of instruction it is: x111 is that unit's arithmetic. */
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
