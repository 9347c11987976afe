/* Nodes and buffers, for node.rs, buffer.rs and chain.rs: VPP's macros and inline functions as functions. Runs on every thread. */

#include <vlib/vlib.h>
#include <vlib/buffer_node.h>
#include <vnet/vnet.h>
#include <vnet/buffer.h>
#include <vnet/feature/feature.h>
#include <vnet/ip/ip4.h>
#include <vnet/ip/ip6.h>
#include <vnet/udp/udp_packet.h>
#include <vnet/interface_output.h>
#include <stddef.h>

/* Written in Rust. */
u32 mmb_rs_trace (const void *trace, u8 *text, u32 room);
extern vlib_error_desc_t mmb_rs_errors[];
extern const u16 mmb_rs_error_count;
vlib_node_function_t mmb_rs_ip4_classify, mmb_rs_ip4_handed, mmb_rs_ip4_rewrite;
vlib_node_function_t mmb_rs_ip6_classify, mmb_rs_ip6_handed, mmb_rs_ip6_rewrite;

/* The longest line of a trace. */
#define MMB_TRACE_TEXT 1024

/* The metadata of a held packet. Its position among the interface's features is looked up again, since these may change meanwhile. */
typedef struct
{
  u32 flags;
  u32 opaque[10];
  u32 opaque2[14];
} mmb_buffer_metadata_t;

/* buffer.rs asserts the same of its struct. */
_Static_assert (sizeof (mmb_buffer_metadata_t) == 100, "as in buffer.rs");
_Static_assert (offsetof (mmb_buffer_metadata_t, flags) == 0, "as in buffer.rs");
_Static_assert (offsetof (mmb_buffer_metadata_t, opaque) == 4, "as in buffer.rs");
_Static_assert (offsetof (mmb_buffer_metadata_t, opaque2) == 44, "as in buffer.rs");
_Static_assert (sizeof (((vlib_buffer_t *) 0)->opaque) == sizeof (((mmb_buffer_metadata_t *) 0)->opaque), "all of it");
_Static_assert (sizeof (((vlib_buffer_t *) 0)->opaque2) == sizeof (((mmb_buffer_metadata_t *) 0)->opaque2), "all of it");

/* buffer.rs relies on these: an index counts cache lines of 64 bytes, and a buffer's data follow its pre-data. */
_Static_assert (CLIB_LOG2_CACHE_LINE_BYTES == 6, "INDEX_SHIFT in buffer.rs");
_Static_assert (sizeof (vlib_buffer_t) == 128 + VLIB_BUFFER_PRE_DATA_SIZE, "as in buffer.rs");
_Static_assert (offsetof (vlib_buffer_t, data) ==
		offsetof (vlib_buffer_t, pre_data) + VLIB_BUFFER_PRE_DATA_SIZE, "views span both");

/* errors.rs fills a table of these. */
_Static_assert (sizeof (vlib_error_desc_t) == 24, "as in errors.rs");

static u8 *mmb_format_trace (u8 *s, va_list *args);

/* A node that decides, its like for what other threads hand over, and the one that rewrites. The last two have the first one's next
 * nodes, which are also where its feature leads. */
#define MMB_NODES(ip)                                                      \
  VLIB_REGISTER_NODE (mmb_##ip##_classify_node) = {                           \
    .name = #ip "-mmb-classify",                                              \
    .function = mmb_rs_##ip##_classify,                                       \
    .vector_size = sizeof (u32),                                              \
    .format_trace = mmb_format_trace,                                         \
    .n_next_nodes = 2,                                                        \
    .next_nodes = { [0] = "error-drop", [1] = #ip "-mmb-rewrite" },           \
  };                                                                          \
  VLIB_REGISTER_NODE (mmb_##ip##_handed_node) = {                             \
    .name = #ip "-mmb-handed",                                                \
    .function = mmb_rs_##ip##_handed,                                         \
    .vector_size = sizeof (u32),                                              \
    .format_trace = mmb_format_trace,                                         \
    .sibling_of = #ip "-mmb-classify",                                        \
  };                                                                          \
  VLIB_REGISTER_NODE (mmb_##ip##_rewrite_node) = {                            \
    .name = #ip "-mmb-rewrite",                                               \
    .function = mmb_rs_##ip##_rewrite,                                        \
    .vector_size = sizeof (u32),                                              \
    .format_trace = mmb_format_trace,                                         \
    .sibling_of = #ip "-mmb-classify",                                        \
  };                                                                          \
  VNET_FEATURE_INIT (mmb_##ip##_feature, static) = {                          \
    .arc_name = #ip "-unicast",                                               \
    .node_name = #ip "-mmb-classify",                                         \
    .runs_after = VNET_FEATURES (#ip "-full-reassembly-feature"),             \
    .runs_before = VNET_FEATURES (#ip "-sv-reassembly-feature",               \
				  #ip "-lookup"),                             \
  };                                                                          \
  VNET_FEATURE_INIT (mmb_##ip##_multicast_feature, static) = {                \
    .arc_name = #ip "-multicast",                                             \
    .node_name = #ip "-mmb-classify",                                         \
    .runs_before = VNET_FEATURES (#ip "-mfib-forward-lookup"),                \
  };

MMB_NODES (ip4)
MMB_NODES (ip6)

extern vlib_node_registration_t mmb_tick_node;

static vlib_node_registration_t *mmb_nodes[] = {
  &mmb_tick_node,
  &mmb_ip4_classify_node, &mmb_ip4_handed_node, &mmb_ip4_rewrite_node,
  &mmb_ip6_classify_node, &mmb_ip6_handed_node, &mmb_ip6_rewrite_node,
};

/* The table of errors is Rust's. VPP reads registrations long after it has loaded the plugin. */
static void __attribute__ ((constructor))
mmb_name_errors (void)
{
  for (int i = 0; i < ARRAY_LEN (mmb_nodes); i++)
    {
      mmb_nodes[i]->error_counters = mmb_rs_errors;
      mmb_nodes[i]->n_errors = mmb_rs_error_count;
    }
}

/* By family: IPv4, IPv6. */
static u32 mmb_queues[2];

/* mmb's place on an arc. */
typedef struct
{
  u8 arc;
  u32 feature;
} mmb_arc_t;

/* By family, and by whether packets go to many. */
static mmb_arc_t mmb_arcs[2][2];

static mmb_arc_t
mmb_find_arc (const char *arc, const char *node)
{
  u8 index = vnet_get_feature_arc_index (arc);
  return (mmb_arc_t){ index, vnet_get_feature_index (index, node) };
}

/* Where packets of an interface go on that are at mmb's node of an arc: their place in VPP's configuration, as the interface's
 * features are now; ~0 if mmb is none of them. What a buffer itself says of that holds only until its thread lets VPP change features:
 * the configuration that it means may be freed then. */
u32
mmb_shim_feature_position (u32 family, u32 multicast, u32 sw_if_index)
{
  mmb_arc_t *mine = &mmb_arcs[family][multicast];
  vnet_feature_config_main_t *fcm = vnet_get_feature_arc_config_main (mine->arc);
  if (!fcm || sw_if_index >= vec_len (fcm->config_index_by_sw_if_index) ||
      !vnet_have_features (mine->arc, sw_if_index))
    return ~0;
  u32 place = fcm->config_index_by_sw_if_index[sw_if_index];
  if (place == ~0)
    return ~0;
  vnet_config_main_t *cm = &fcm->config_main;
  /* In front of a configuration stands which one it is. */
  u32 *start = heap_elt_at_index (*vnet_get_config_heap (cm), place);
  vnet_config_t *config = pool_elt_at_index (cm->config_pool, start[-1]);
  vnet_config_feature_t *f;
  vec_foreach (f, config->features)
    {
      /* Which node the feature is, then what it is told. */
      place++;
      if (f->feature_index == mine->feature)
	return place;
      place += vec_len (f->feature_config);
    }
  return ~0;
}

static clib_error_t *
mmb_make_queues (vlib_main_t *vm)
{
  mmb_arcs[0][0] = mmb_find_arc ("ip4-unicast", "ip4-mmb-classify");
  mmb_arcs[0][1] = mmb_find_arc ("ip4-multicast", "ip4-mmb-classify");
  mmb_arcs[1][0] = mmb_find_arc ("ip6-unicast", "ip6-mmb-classify");
  mmb_arcs[1][1] = mmb_find_arc ("ip6-multicast", "ip6-mmb-classify");
  mmb_queues[0] = vlib_frame_queue_main_init (mmb_ip4_handed_node.index, 0);
  mmb_queues[1] = vlib_frame_queue_main_init (mmb_ip6_handed_node.index, 0);
  return 0;
}

VLIB_MAIN_LOOP_ENTER_FUNCTION (mmb_make_queues);

/* This thread's state of a node that decides. */
vlib_node_runtime_t *
mmb_shim_runtime (vlib_main_t *vm, u32 family)
{
  return vlib_node_get_runtime (vm, family ? mmb_ip6_classify_node.index :
					     mmb_ip4_classify_node.index);
}

/* Counts packets that are in no buffer any more. */
void
mmb_shim_count_lost (vlib_main_t *vm, u32 error, u64 packets)
{
  vlib_node_increment_counter (vm, mmb_tick_node.index, error, packets);
}

void
mmb_shim_count (vlib_main_t *vm, vlib_node_runtime_t *node, u32 error,
		u64 packets)
{
  vlib_node_increment_counter (vm, node->node_index, error, packets);
}

/* Hands buffers over to other threads; returns how many found room, the others are freed. */
u32
mmb_shim_hand_over (vlib_main_t *vm, vlib_node_runtime_t *node, u32 family,
		    u32 *buffers, u16 *threads, u32 count)
{
  return vlib_buffer_enqueue_to_thread (vm, node, mmb_queues[family], buffers,
					threads, count, 1);
}

void
mmb_shim_free (vlib_main_t *vm, u32 *buffers, u32 count)
{
  vlib_buffer_free (vm, buffers, count);
}

/* The bytes of a chain; those of a buffer that is alone too. */
u32
mmb_shim_chain_length (vlib_main_t *vm, vlib_buffer_t *b)
{
  return vlib_buffer_length_in_chain (vm, b);
}

/* Copies the bytes of a chain; `out` has room for mmb_shim_chain_length. */
void
mmb_shim_gather (vlib_main_t *vm, vlib_buffer_t *b, u8 *out)
{
  while (1)
    {
      clib_memcpy_fast (out, vlib_buffer_get_current (b), b->current_length);
      out += b->current_length;
      if (!(b->flags & VLIB_BUFFER_NEXT_PRESENT))
	return;
      b = vlib_get_buffer (vm, b->next_buffer);
    }
}

/* Makes a chain as short as its bytes allow; returns how many buffers there are now, 0 if that failed. */
u32
mmb_shim_linearize (vlib_main_t *vm, vlib_buffer_t *b)
{
  return b->ref_count == 1 ? vlib_buffer_chain_linearize (vm, b) : 0;
}

/* Puts bytes back into the chain that they were gathered from. Its first buffer begins `moved` bytes earlier now, for which there is
 * headroom, or later, where it stays longer than nothing. */
void
mmb_shim_scatter (vlib_main_t *vm, vlib_buffer_t *first, const u8 *in, i32 moved)
{
  vlib_buffer_advance (first, -moved);
  for (vlib_buffer_t *b = first;; b = vlib_get_buffer (vm, b->next_buffer))
    {
      clib_memcpy_fast (vlib_buffer_get_current (b), in, b->current_length);
      in += b->current_length;
      if (!(b->flags & VLIB_BUFFER_NEXT_PRESENT))
	return;
    }
}

/* Finishes the checksums that a sender left to hardware, so that rules see what a wire would carry. A packet that hardware is still to
 * cut into segments keeps asking for theirs. */
void
mmb_shim_finish_checksums (vlib_main_t *vm, vlib_buffer_t *b)
{
  vnet_buffer_oflags_t asked = vnet_buffer (b)->oflags;
  u8 version = ((u8 *) vlib_buffer_get_current (b))[0] >> 4;
  vnet_calc_checksums_inline (vm, b, version == 4, version == 6);
  if (b->flags & VNET_BUFFER_F_GSO)
    vnet_buffer_offload_flags_set (b, asked);
}

/* The packet's headers moved `moved` bytes towards the buffer's begin, and its TCP header is `grown` bytes longer. */
void
mmb_shim_moved (vlib_buffer_t *b, i32 moved, i32 grown)
{
  if (b->flags & VNET_BUFFER_F_L3_HDR_OFFSET_VALID)
    vnet_buffer (b)->l3_hdr_offset -= moved;
  if (b->flags & VNET_BUFFER_F_L4_HDR_OFFSET_VALID)
    vnet_buffer (b)->l4_hdr_offset -= moved;
  if (b->flags & VNET_BUFFER_F_GSO)
    vnet_buffer2 (b)->gso_l4_hdr_sz += grown;
}

/* Remembers of a packet what its bytes do not tell. */
void
mmb_shim_save_metadata (vlib_buffer_t *b, mmb_buffer_metadata_t *metadata)
{
  metadata->flags = b->flags & ~VLIB_BUFFER_FLAGS_ALL;
  clib_memcpy_fast (metadata->opaque, b->opaque, sizeof (metadata->opaque));
  clib_memcpy_fast (metadata->opaque2, b->opaque2, sizeof (metadata->opaque2));
}

/* A buffer, or a chain, of these bytes, like another that they came in; returns 0 if there is none. */
int
mmb_shim_alloc_copy (vlib_main_t *vm, const mmb_buffer_metadata_t *metadata, u8 *bytes, u32 count,
		 u32 *index)
{
  if (vlib_buffer_alloc (vm, index, 1) != 1)
    return 0;
  vlib_buffer_t *b = vlib_get_buffer (vm, *index);
  b->flags |= metadata->flags & ~VNET_BUFFER_F_L2_HDR_OFFSET_VALID &
	      ~VNET_BUFFER_F_L3_HDR_OFFSET_VALID &
	      ~VNET_BUFFER_F_L4_HDR_OFFSET_VALID & ~VNET_BUFFER_F_OFFLOAD;
  clib_memcpy_fast (b->opaque, metadata->opaque, sizeof (metadata->opaque));
  clib_memcpy_fast (b->opaque2, metadata->opaque2, sizeof (metadata->opaque2));
  u32 last = *index;
  if (vlib_buffer_add_data (vm, &last, bytes, count))
    {
      vlib_buffer_free_one (vm, *index);
      return 0;
    }
  return 1;
}

/* A buffer of these bytes that seems to have come in by an interface; returns 0 if there is none. */
int
mmb_shim_alloc_made (vlib_main_t *vm, u32 family, u32 sw_if_index, u8 *bytes, u32 count, u32 *index)
{
  if (vlib_buffer_alloc (vm, index, 1) != 1)
    return 0;
  vlib_buffer_t *b = vlib_get_buffer (vm, *index);
  b->flags |= family ? VNET_BUFFER_F_IS_IP6 : VNET_BUFFER_F_IS_IP4;
  clib_memset (b->opaque, 0, sizeof (b->opaque));
  clib_memset (b->opaque2, 0, sizeof (b->opaque2));
  vnet_buffer (b)->sw_if_index[VLIB_RX] = sw_if_index;
  vnet_buffer (b)->sw_if_index[VLIB_TX] = ~0;
  u32 last = *index;
  if (vlib_buffer_add_data (vm, &last, bytes, count))
    {
      vlib_buffer_free_one (vm, *index);
      return 0;
    }
  return 1;
}

static u8 *
mmb_format_trace (u8 *s, va_list *args)
{
  u8 text[MMB_TRACE_TEXT];
  va_arg (*args, vlib_main_t *);
  va_arg (*args, vlib_node_t *);
  u32 count = mmb_rs_trace (va_arg (*args, void *), text, sizeof (text));
  vec_add (s, text, count);
  return s;
}
