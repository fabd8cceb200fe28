/* What the kernels need of OpenCL C. In front of this stands GROUP_ITEMS. */

#define KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void
#define GLOBAL __global
#define LOCAL __local
#define GROUP ((uint)get_group_id(0))
#define ITEM ((uint)get_local_id(0))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define UNROLL _Pragma("unroll")

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef long i64;
typedef uint4 u128;

