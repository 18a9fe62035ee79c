/* Devices, contexts, streams, events and memory. */
#ifndef ACLNN_PY_ACL_RT_H
#define ACLNN_PY_ACL_RT_H

#include "acl_base.h"

#define ACL_STREAM_FAST_LAUNCH 0x1u
#define ACL_STREAM_FAST_SYNC 0x2u
#define ACL_STREAM_PERSISTENT 0x4u
#define ACL_STREAM_HUGE 0x8u
#define ACL_STREAM_CPU_SCHEDULE 0x10u
#define ACL_STREAM_DEVICE_USE_ONLY 0x20u

#define ACL_EVENT_SYNC 0x1u
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x2u
#define ACL_EVENT_TIME_LINE 0x8u
#define ACL_EVENT_DEVICE_USE_ONLY 0x10u
#define ACL_EVENT_EXTERNAL 0x20u
#define ACL_EVENT_IPC 0x40u

#endif
