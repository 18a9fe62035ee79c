/* Functions that only the CPU emulator has. Those that control it (libascendcl.so): finding aclnnEmulatorVersion in a library tells
 * the emulator from CANN. They are not counted as calls and never fail by injection. */
#ifndef ACLNN_EMULATOR_H
#define ACLNN_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *aclnnEmulatorVersion(void);

/* The next call of the C function `api` (any function of the ABI, both stages of operators included) returns `code`,
 * or NULL where it returns a pointer; aclGetRecentErrMsg gives exactly `message`, nothing when it is NULL.
 * One-shot; several may wait. A function that releases something does release it; one that waits does wait, unless
 * `code` is a time-out; a stage two consumes its executor and queues nothing; a stage one of a generated operator
 * writes *executor and leaves its slot busy. 100002 from aclInit means that another component initialised first. */
void aclnnEmulatorFailNext(const char *api, int32_t code, const char *message);

/* The next queued kernel of the operator ("aclnnMoeFinalizeRoutingV2Grad") does not run and fails with `code`,
 * which the next synchronise returns. */
void aclnnEmulatorFailAsync(const char *op, int32_t code);

/* The nth call from now (1 is the next one) of whatever function fails with `code`. 0 cancels. */
void aclnnEmulatorFailAt(uint64_t nth, int32_t code);

/* Calls of functions that can fail, since the library was loaded. */
uint64_t aclnnEmulatorCallCount(void);

/* Live handles and bytes: "tensors", "scalars", "arrays", "lists", "executors" (a caller must launch or destroy them),
 * "executor_slots" (left busy inside the library by failed calls; nobody can release them), "streams", "events",
 * "contexts", "device_bytes", "device_allocations", "host_bytes", "host_allocations"; since the last reset
 * "violations"; since the start "launches" (kernels run). -1 for any other name. */
int64_t aclnnEmulatorCount(const char *what);

/* Text of the last violation: copied, cut to `size`; returns its length. */
size_t aclnnEmulatorViolation(char *buffer, size_t size);

/* Turns strict mode on or off; ACLNN_EMULATOR_STRICT is the start value. */
void aclnnEmulatorSetStrict(int on);

/* The SoC name, or "A2", "A3", "950". 100002 while the library is initialised. */
int32_t aclnnEmulatorSetSoc(const char *name);

/* Every queued kernel waits this long before it runs: for tests of time-outs and of work still in flight. */
void aclnnEmulatorSetDelay(uint32_t milliseconds);

/* Forgets injected faults, the delay, violations, and this thread's error text. Handles stay. */
void aclnnEmulatorReset(void);

/* Not in the libraries: a program may define it, to have copies checked against its own memory as well. The bytes from
 * `address` to the end of what was allocated there, SIZE_MAX when it cannot tell. */
size_t aclnnEmulatorHostRoom(const void *address);

/* Entry points of an operator that the emulator does not compute (libnnopbase.so): the call is checked for live handles
 * and recorded (ACLNN_EMULATOR_RECORD), its outputs are left as they are, its workspace is 0. `parameters` are the C
 * names, separated by commas; `letters` has one for each: t aclTensor, l aclTensorList, s aclScalar, S aclScalarList,
 * I aclIntArray, F aclFloatArray, B aclBoolArray, c char *, d double, i long long. The arguments follow. */
typedef struct aclOpExecutor aclOpExecutor;
int32_t aclnnEmulatorStageOne(const char *op, const char *parameters, const char *letters, uint64_t *workspaceSize,
                              aclOpExecutor **executor, ...);
int32_t aclnnEmulatorStageTwo(const char *op, void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                              void *stream);

#ifdef __cplusplus
}
#endif

#endif
