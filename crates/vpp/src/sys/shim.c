/* VPP's macros and inline functions as functions for main_thread.rs, and VPP's callbacks, which call entry.rs.
 *
 * All of it runs on VPP's main thread but mmb-tick, which runs on each. */

/* Sets of cores. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include <vlib/vlib.h>
#include <vlib/log.h>
#include <vlib/threads.h>
#include <vlib/unix/unix.h>
#include <vnet/vnet.h>
#include <vnet/devices/devices.h>
#include <vnet/feature/feature.h>
#include <vnet/interface_funcs.h>
#include <vnet/l2/l2_input.h>
#include <stddef.h>

/* Seconds between two looks of mmb-process at what is to be done. */
#define MMB_PAUSE 0.05

/* Written in Rust. */
clib_error_t *mmb_rs_config (const char *text);
clib_error_t *mmb_rs_command (uword number, const char *line);
void mmb_rs_exit (void);
void mmb_rs_interface (u32 sw_if_index, u32 is_add);
void mmb_rs_process (u32 turn);
uword mmb_rs_tick (vlib_main_t *vm);

/* The cores that VPP's threads leave free of those that it may use; known once it read its configuration. */
static cpu_set_t mmb_free;

static void
mmb_find_free_cores (void)
{
  vlib_thread_main_t *tm = vlib_get_thread_main ();
  vlib_thread_registration_t **tr;
  clib_bitmap_t *free = clib_bitmap_dup (tm->cpu_core_bitmap);
  uword core;
  free = clib_bitmap_set (free, tm->main_lcore, 0);
  vec_foreach (tr, tm->registrations)
    free = clib_bitmap_andnot (free, tr[0]->coremask);
  clib_bitmap_foreach (core, free)
    if (core < CPU_SETSIZE)
      CPU_SET (core, &mmb_free);
  clib_bitmap_free (free);
}

/* Has the calling thread, which is none of VPP's, run where VPP does not, if there is such a core; else it stays where VPP's main
 * thread is. */
void
mmb_shim_step_aside (void)
{
  if (CPU_COUNT (&mmb_free))
    pthread_setaffinity_np (pthread_self (), sizeof (mmb_free), &mmb_free);
}

VLIB_REGISTER_LOG_CLASS (mmb_log, static) = {
  .class_name = "mmb",
};

static clib_error_t *
mmb_config (vlib_main_t *vm, unformat_input_t *input)
{
  u8 *text = 0;
  uword c;
  while ((c = unformat_get_input (input)) != UNFORMAT_END_OF_INPUT)
    vec_add1 (text, c);
  vec_add1 (text, 0);
  mmb_find_free_cores ();
  clib_error_t *error = mmb_rs_config ((char *) text);
  vec_free (text);
  return error;
}

VLIB_CONFIG_FUNCTION (mmb_config, "mmb");

static clib_error_t *
mmb_exit (vlib_main_t *vm)
{
  mmb_rs_exit ();
  return 0;
}

VLIB_MAIN_LOOP_EXIT_FUNCTION (mmb_exit);

static clib_error_t *
mmb_interface (vnet_main_t *vnm, u32 sw_if_index, u32 is_add)
{
  mmb_rs_interface (sw_if_index, is_add);
  return 0;
}

VNET_SW_INTERFACE_ADD_DEL_FUNCTION (mmb_interface);

VLIB_NODE_FN (mmb_tick_node)
(vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame)
{
  return mmb_rs_tick (vm);
}

VLIB_REGISTER_NODE (mmb_tick_node) = {
  .name = "mmb-tick",
  .type = VLIB_NODE_TYPE_INPUT,
  .state = VLIB_NODE_STATE_INTERRUPT,
};

/* Has every thread run mmb-tick soon. */
void
mmb_shim_kick (void)
{
  for (u32 thread = 0; thread < vlib_get_n_threads (); thread++)
    vlib_node_set_interrupt_pending (vlib_get_main_by_index (thread),
				     mmb_tick_node.index);
}

static uword
mmb_process (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame)
{
  for (u32 turn = 0;; turn++)
    {
      mmb_shim_kick ();
      mmb_rs_process (turn);
      vlib_process_suspend (vm, MMB_PAUSE);
    }
  return 0;
}

VLIB_REGISTER_NODE (mmb_process_node, static) = {
  .name = "mmb-process",
  .type = VLIB_NODE_TYPE_PROCESS,
  .function = mmb_process,
  .process_log2_n_stack_bytes = 16,
};

/* Threads that run nodes, the main one among them; known from the configuration on. */
u32
mmb_shim_threads (void)
{
  return vlib_get_thread_main ()->n_vlib_mains;
}

/* Notes which of so many threads have receive queues of interfaces. */
void
mmb_shim_queues (u8 *have, u32 threads)
{
  vnet_hw_if_rx_queue_t *queue;
  pool_foreach (queue, vnet_get_main ()->interface_main.hw_if_rx_queues)
    if (queue->thread_index < threads)
      have[queue->thread_index] = 1;
}

/* The core of a thread once the threads run, or ~0. */
u32
mmb_shim_core (u32 thread)
{
  return thread < vec_len (vlib_worker_threads) ?
	   (u32) vlib_worker_threads[thread].cpu_id :
	   ~0;
}

/* A line of the log, with a level of LogLevel in main_thread.rs. */
void
mmb_shim_log (u32 level, const char *text)
{
  static const vlib_log_level_t levels[] = {
    VLIB_LOG_LEVEL_ERR,
    VLIB_LOG_LEVEL_WARNING,
    VLIB_LOG_LEVEL_NOTICE,
  };
  vlib_log (levels[level], mmb_log.class, "%s", text);
}

/* An error without the place in the source that VPP's own macro puts before it. */
clib_error_t *
mmb_shim_error (const char *text)
{
  return _clib_error_return (0, 0, 0, 0, "%s", text);
}

void
mmb_shim_output (const char *text)
{
  vlib_cli_output (vlib_get_main (), "%s", text);
}

const char *
mmb_shim_runtime_dir (void)
{
  return vlib_unix_get_runtime_dir ();
}

static clib_error_t *
mmb_command (vlib_main_t *vm, unformat_input_t *input,
	     vlib_cli_command_t *command)
{
  u8 *line = 0;
  unformat_user (input, unformat_line, &line);
  vec_add1 (line, 0);
  clib_error_t *error =
    mmb_rs_command (command->function_arg, (char *) line);
  vec_free (line);
  return error;
}

/* Adds a command to VPP's command line, whose function is mp-safe: no barrier stops the workers for it. */
clib_error_t *
mmb_shim_add_command (char *path, char *usage, char *help, uword number)
{
  vlib_cli_command_t command = {
    .path = path,
    .short_help = usage,
    .long_help = help,
    .function = mmb_command,
    .function_arg = number,
    .is_mp_safe = 1,
  };
  return vlib_cli_register (vlib_get_main (), &command);
}

/* Whether the workers are stopped, as they are where there are none. */
int
mmb_shim_workers_are_stopped (void)
{
  return vlib_worker_thread_barrier_held ();
}

/* Whether the process that runs is one whose name begins so. */
static int
mmb_in_process (const char *name)
{
  vlib_main_t *vm = vlib_get_main ();
  if (!vlib_in_process_context (vm))
    return 0;
  vlib_node_t *node =
    vlib_get_node (vm, vlib_get_current_process_node_index (vm));
  return !strncmp ((char *) node->name, name, strlen (name));
}

/* Whether the command that runs stands in a script: VPP has nobody to show its answer to, and puts it on its standard output. */
int
mmb_shim_is_script (void)
{
  vlib_main_t *vm = vlib_get_main ();
  return !vlib_in_process_context (vm) ||
	 !vlib_get_current_process (vm)->output_function;
}

/* Whether mmb_shim_suspend may be called: in a process that only carries commands out, and not while others wait behind a barrier. */
int
mmb_shim_may_suspend (void)
{
  return (mmb_in_process ("unix-cli-process-") ||
	  mmb_in_process ("startup-config-process")) &&
	 (vlib_get_n_threads () < 2 || !vlib_worker_thread_barrier_held ());
}

/* Whether such an event waits for the process that runs, which it goes on doing. */
static int
mmb_event_waits (uword event)
{
  vlib_process_t *p = vlib_get_current_process (vlib_get_main ());
  uword *type = hash_get (p->event_type_index_by_type_opaque, event);
  return type && clib_bitmap_get (p->non_empty_event_type_bitmap, type[0]);
}

/* What the client did since it gave the command that runs: 0 nothing, 1 typed something, 2 went. */
u32
mmb_shim_client_state (void)
{
  if (!mmb_in_process ("unix-cli-process-"))
    return 0;
  if (mmb_event_waits (UNIX_CLI_PROCESS_EVENT_QUIT))
    return 2;
  return mmb_event_waits (UNIX_CLI_PROCESS_EVENT_READ_READY);
}

void
mmb_shim_suspend (f64 seconds)
{
  vlib_process_suspend (vlib_get_main (), seconds);
}

/* The numbers of the interfaces, up to `room` of them; returns how many there are. */
u32
mmb_shim_interfaces (u32 *numbers, u32 room)
{
  u32 count = 0;
  vnet_sw_interface_t *si;
  pool_foreach (si, vnet_get_main ()->interface_main.sw_interfaces)
    {
      if (count < room)
	numbers[count] = si->sw_if_index;
      count++;
    }
  return count;
}

/* MmbInterface in main_thread.rs, which asserts the same. */
typedef struct
{
  u32 mtu;
  u8 link_up;
  u8 has_mac;
  u8 bridged;
  u8 mac[6];
  u8 name[64];
  u8 driver[64];
} mmb_interface_t;

_Static_assert (sizeof (mmb_interface_t) == 144, "as in main_thread.rs");
_Static_assert (offsetof (mmb_interface_t, link_up) == 4, "as in main_thread.rs");
_Static_assert (offsetof (mmb_interface_t, mac) == 7, "as in main_thread.rs");
_Static_assert (offsetof (mmb_interface_t, name) == 13, "as in main_thread.rs");
_Static_assert (offsetof (mmb_interface_t, driver) == 77, "as in main_thread.rs");

static void
mmb_text (u8 *text, uword room, u8 *from)
{
  uword length = clib_min (vec_len (from), room - 1);
  clib_memcpy (text, from, length);
  text[length] = 0;
}

/* Tells about an interface; returns 0 if there is none of that number. */
int
mmb_shim_interface (u32 sw_if_index, mmb_interface_t *out)
{
  vnet_main_t *vnm = vnet_get_main ();
  vnet_sw_interface_t *si = vnet_get_sw_interface_or_null (vnm, sw_if_index);
  if (!si)
    return 0;
  vnet_hw_interface_t *hw = vnet_get_sup_hw_interface (vnm, sw_if_index);
  clib_memset (out, 0, sizeof (*out));
  out->mtu = vnet_sw_interface_get_mtu (vnm, sw_if_index, VNET_MTU_IP4);
  out->link_up = vnet_sw_interface_is_up (vnm, sw_if_index);
  if (vec_len (hw->hw_address) == sizeof (out->mac))
    {
      out->has_mac = 1;
      clib_memcpy (out->mac, hw->hw_address, sizeof (out->mac));
    }
  l2_input_config_t *l2 = l2input_intf_config (sw_if_index);
  /* What VPP itself takes in of a bridge by its BVI is routed. */
  out->bridged = (l2_input_is_bridge (l2) && !l2_input_is_bvi (l2)) ||
		 l2_input_is_xconnect (l2);
  u8 *name =
    format (0, "%U", format_vnet_sw_if_index_name, vnm, sw_if_index);
  mmb_text (out->name, sizeof (out->name), name);
  vec_free (name);
  vnet_device_class_t *class = vnet_get_device_class (vnm, hw->dev_class_index);
  u8 *driver = format (0, "%s", class->name);
  mmb_text (out->driver, sizeof (out->driver), driver);
  vec_free (driver);
  return 1;
}

static int
mmb_feature (const char *arc, const char *node, u32 sw_if_index, int on)
{
  return vnet_feature_enable_disable (arc, node, sw_if_index, on, 0, 0);
}

/* Puts mmb's nodes into an interface's ways of packets, or takes them out; returns 0, or VPP's error and nothing is changed. */
int
mmb_shim_switch (u32 sw_if_index, int on)
{
  vlib_main_t *vm = vlib_get_main ();
  vlib_worker_thread_barrier_sync (vm);
  static const char *const places[][2] = {
    { "ip4-unicast", "ip4-mmb-classify" },
    { "ip6-unicast", "ip6-mmb-classify" },
    { "ip4-multicast", "ip4-mmb-classify" },
    { "ip6-multicast", "ip6-mmb-classify" },
  };
  int error = 0, done;
  for (done = 0; done < ARRAY_LEN (places); done++)
    {
      error = mmb_feature (places[done][0], places[done][1], sw_if_index, on);
      if (error)
	break;
    }
  while (error && done-- > 0)
    mmb_feature (places[done][0], places[done][1], sw_if_index, !on);
  vlib_worker_thread_barrier_release (vm);
  return error;
}
