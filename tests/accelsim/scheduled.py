"""Scheduled modules, written by hand, that tests of programs and of annotated modules share.

All sizes are multiples of 1,024 bytes unless a test counts them.
"""

from __future__ import annotations

from accelsim.readers.module import parse
from accelsim.xla import Compiler

# steps: double 0, (cond less 1), body: wx 2, update 3, next 4, after the loop: last 5, sum 6
LOOP_IN_PLACE = """HloModule loop_in_place, is_scheduled=true

cond {
  cp = (s32[], f32[256], f32[4,256], f32[256]) parameter(0)
  ci = s32[] get-tuple-element(cp), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(ci, n), direction=LT
}

body {
  bp = (s32[], f32[256], f32[4,256], f32[256]) parameter(0)
  i = s32[] get-tuple-element(bp), index=0
  x = f32[256] get-tuple-element(bp), index=1
  rows = f32[4,256] get-tuple-element(bp), index=2
  w = f32[256] get-tuple-element(bp), index=3
  zero = s32[] constant(0)
  scale = f32[256] constant({...})
  wx = f32[256] multiply(x, w)
  row = f32[1,256] bitcast(wx)
  update = f32[4,256] dynamic-update-slice(rows, row, i, zero)
  scaled = f32[256] multiply(wx, scale)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT bt = (s32[], f32[256], f32[4,256], f32[256]) tuple(next, scaled, update, w)
}

ENTRY main {
  p = f32[256] parameter(0)
  weight = f32[256] parameter(1)
  c0 = s32[] constant(0)
  start = s32[] copy(c0)
  double = f32[256] add(p, p)
  fill = f32[] constant(0)
  empty = f32[4,256] broadcast(fill), dimensions={}
  t = (s32[], f32[256], f32[4,256], f32[256]) tuple(start, double, empty, weight)
  loop = (s32[], f32[256], f32[4,256], f32[256]) while(t), condition=cond, body=body,
    backend_config={"known_trip_count":{"n":"4"}}
  after = f32[256] get-tuple-element(loop), index=3
  last = f32[256] multiply(after, after)
  x_out = f32[256] get-tuple-element(loop), index=1
  sum = f32[256] add(last, x_out)
  rows_out = f32[4,256] get-tuple-element(loop), index=2
  ROOT out = (f32[256], f32[4,256]) tuple(sum, rows_out)
}
"""

CONDITIONAL = """HloModule conditional, is_scheduled=true

left {
  lp = (f32[256], f32[256]) parameter(0)
  la = f32[256] get-tuple-element(lp), index=0
  lb = f32[256] get-tuple-element(lp), index=1
  lsum = f32[256] add(la, lb)
  lneg = f32[256] negate(lsum)
  ROOT lt = (f32[256], f32[256]) tuple(lneg, lsum)
}

right {
  rp = f32[256] parameter(0)
  rexp = f32[256] exponential(rp)
  rabs = f32[256] abs(rp)
  ROOT rt = (f32[256], f32[256]) tuple(rexp, rabs)
}

ENTRY main {
  a = f32[256] parameter(0)
  b = f32[256] parameter(1)
  which = pred[] parameter(2)
  a2 = f32[256] add(a, a)
  b2 = f32[256] multiply(b, b)
  both = (f32[256], f32[256]) tuple(a2, b2)
  c = (f32[256], f32[256]) conditional(which, both, b2), true_computation=left, false_computation=right
  c0 = f32[256] get-tuple-element(c), index=0
  c1 = f32[256] get-tuple-element(c), index=1
  mix = f32[256] add(c0, b2)
  end = f32[256] multiply(mix, c1)
  ROOT flat = f32[16,16] bitcast(end)
}
"""

NESTED = """HloModule nested, is_scheduled=true

inner_cond {
  icp = (s32[], f32[256]) parameter(0)
  ici = s32[] get-tuple-element(icp), index=0
  in = s32[] constant(3)
  ROOT iless = pred[] compare(ici, in), direction=LT
}

inner_body {
  ibp = (s32[], f32[256]) parameter(0)
  ii = s32[] get-tuple-element(ibp), index=0
  ix = f32[256] get-tuple-element(ibp), index=1
  ihalf = f32[256] multiply(ix, ix)
  ione = s32[] constant(1)
  inext = s32[] add(ii, ione)
  ROOT ibt = (s32[], f32[256]) tuple(inext, ihalf)
}

outer_cond {
  ocp = (s32[], f32[256], f32[256]) parameter(0)
  oci = s32[] get-tuple-element(ocp), index=0
  on = s32[] constant(5)
  ROOT oless = pred[] compare(oci, on), direction=LT
}

outer_body {
  obp = (s32[], f32[256], f32[256]) parameter(0)
  oi = s32[] get-tuple-element(obp), index=0
  ox = f32[256] get-tuple-element(obp), index=1
  ow = f32[256] get-tuple-element(obp), index=2
  kept = f32[256] add(ox, ow)
  oz = s32[] constant(0)
  oj = s32[] copy(oz)
  oy = f32[256] multiply(ox, ow)
  ot = (s32[], f32[256]) tuple(oj, oy)
  inner = (s32[], f32[256]) while(ot), condition=inner_cond, body=inner_body,
    backend_config={"known_trip_count":{"n":"3"}}
  oq = f32[256] get-tuple-element(inner), index=1
  osum = f32[256] add(oq, kept)
  oone = s32[] constant(1)
  onext = s32[] add(oi, oone)
  ROOT obt = (s32[], f32[256], f32[256]) tuple(onext, osum, ow)
}

ENTRY main {
  p = f32[256] parameter(0)
  w = f32[256] parameter(1)
  z = s32[] constant(0)
  j = s32[] copy(z)
  x = f32[256] copy(p)
  t = (s32[], f32[256], f32[256]) tuple(j, x, w)
  outer = (s32[], f32[256], f32[256]) while(t), condition=outer_cond, body=outer_body,
    backend_config={"known_trip_count":{"n":"5"}}
  r = f32[256] get-tuple-element(outer), index=1
  v = f32[256] get-tuple-element(outer), index=2
  ROOT s = f32[256] add(r, v)
}
"""

CALLS = """HloModule calls, is_scheduled=true

scaled {
  sp = f32[256] parameter(0)
  sq = f32[256] parameter(1)
  sc = f32[256] constant({...})
  sm = f32[256] multiply(sp, sc)
  ROOT sa = f32[256] add(sm, sq)
}

twice {
  tp = f32[256] parameter(0)
  t1 = f32[256] call(tp, tp), to_apply=scaled
  ROOT t2 = f32[256] call(t1, tp), to_apply=scaled
}

shared_cond {
  cp = (s32[], f32[256]) parameter(0)
  ci = s32[] get-tuple-element(cp), index=0
  n = s32[] constant(2)
  ROOT less = pred[] compare(ci, n), direction=LT
}

shared_body {
  bp = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(bp), index=0
  x = f32[256] get-tuple-element(bp), index=1
  y = f32[256] call(x, x), to_apply=scaled
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT bt = (s32[], f32[256]) tuple(next, y)
}

ENTRY main {
  a = f32[256] parameter(0)
  first = f32[256] call(a), to_apply=twice
  z = s32[] constant(0)
  j = s32[] copy(z)
  t = (s32[], f32[256]) tuple(j, first)
  w1 = (s32[], f32[256]) while(t), condition=shared_cond, body=shared_body
  x1 = f32[256] get-tuple-element(w1), index=1
  k = s32[] copy(z)
  u = (s32[], f32[256]) tuple(k, x1)
  w2 = (s32[], f32[256]) while(u), condition=shared_cond, body=shared_body
  x2 = f32[256] get-tuple-element(w2), index=1
  ROOT s = f32[256] add(x2, a)
}
"""

# Results in tuples, parameters late in the schedule, a tuple operand that is made early, one input updated in place.
TUPLES = """HloModule tuples, is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }

less {
  l0 = f32[] parameter(0)
  l1 = f32[] parameter(1)
  l2 = s32[] parameter(2)
  l3 = s32[] parameter(3)
  ROOT l4 = pred[] compare(l0, l1), direction=LT
}

part {
  pp = (f32[256], (s32[256], f32[256])) parameter(0)
  pa = f32[256] get-tuple-element(pp), index=0
  pt = (s32[256], f32[256]) get-tuple-element(pp), index=1
  pb = f32[256] get-tuple-element(pt), index=1
  ROOT pr = f32[256] subtract(pa, pb)
}

other {
  qp = f32[256] parameter(0)
  ROOT qr = f32[256] negate(qp)
}

ENTRY main {
  keys = f32[256] parameter(0)
  ids = s32[256] iota(), iota_dimension=0
  late = f32[256] parameter(2)
  inner = (s32[256], f32[256]) tuple(ids, late)
  outer = (f32[256], (s32[256], f32[256])) tuple(keys, inner)
  sorted = (f32[256], s32[256]) sort(keys, ids), dimensions={0}, to_apply=less
  k = f32[256] get-tuple-element(sorted), index=0
  v = s32[256] get-tuple-element(sorted), index=1
  state = f32[256] parameter(1)
  flag = pred[] parameter(3)
  square = f32[256] multiply(k, k)
  pick = f32[256] conditional(flag, outer, square), true_computation=part, false_computation=other
  fresh = f32[256] add(state, pick)
  vf = f32[256] convert(v)
  again = f32[256] add(fresh, vf)
  more = f32[256] add(again, late)
  ROOT out = (f32[256], f32[256], (f32[256], s32[256])) tuple(more, fresh, sorted)
}
"""

# As no copy insertion has left it: parameters and constants are carried as they are, elements change places, one value
# stands in two elements and is read afterwards, a branch returns what it was given.
NO_COPIES = """HloModule no_copies, is_scheduled=true

cond {
  cp = (s32[], f32[256], f32[256], f32[256]) parameter(0)
  ci = s32[] get-tuple-element(cp), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(ci, n), direction=LT
}

body {
  bp = (s32[], f32[256], f32[256], f32[256]) parameter(0)
  i = s32[] get-tuple-element(bp), index=0
  x = f32[256] get-tuple-element(bp), index=1
  y = f32[256] get-tuple-element(bp), index=2
  z = f32[256] get-tuple-element(bp), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  z2 = f32[256] multiply(z, x)
  ROOT bt = (s32[], f32[256], f32[256], f32[256]) tuple(next, y, x, z2)
}

left {
  lp = f32[256] parameter(0)
  ROOT lb = f32[256] bitcast(lp)
}

right {
  rp = f32[256] parameter(0)
  ROOT rn = f32[256] negate(rp)
}

ENTRY main {
  p = f32[256] parameter(0)
  flag = pred[] parameter(1)
  c0 = s32[] constant(0)
  q = f32[256] negate(p)
  t = (s32[], f32[256], f32[256], f32[256]) tuple(c0, p, q, q)
  loop = (s32[], f32[256], f32[256], f32[256]) while(t), condition=cond, body=body
  x1 = f32[256] get-tuple-element(loop), index=1
  y1 = f32[256] get-tuple-element(loop), index=2
  z1 = f32[256] get-tuple-element(loop), index=3
  a = f32[256] subtract(x1, y1)
  b = f32[256] subtract(a, q)
  d = f32[256] conditional(flag, b, b), true_computation=left, false_computation=right
  e = f32[256] add(d, b)
  ROOT r = f32[256] subtract(e, z1)
}
"""

# What is under way from its start to its done: wrapped, collective, sent and received.
ASYNC = """HloModule m, is_scheduled=true, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

wrapped {
  x = f32[256]{0} parameter(0)
  ROOT y = f32[256]{0} custom-call(x), custom_call_target="Elsewhere"
}

ENTRY e {
  p = f32[256]{0} parameter(0)
  x = f32[256]{0} add(p, p)
  a = ((f32[256]{0}), f32[256]{0}, u32[]) async-start(x), calls=wrapped
  m = f32[256]{0} multiply(p, p)
  au = ((f32[256]{0}), f32[256]{0}, u32[]) async-update(a)
  ad = f32[256]{0} async-done(au)
  g = (f32[256]{0}, f32[2048]{0}) all-gather-start(m), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  r = f32[256]{0} all-reduce-start(ad), channel_id=2, replica_groups={}, to_apply=add
  c = (f32[256]{0}, f32[256]{0}, u32[], u32[]) collective-permute-start(m), channel_id=3, source_target_pairs={{0,1},{1,0}}
  n = f32[256]{0} add(ad, m)
  cd = f32[256]{0} collective-permute-done(c)
  rd = f32[256]{0} all-reduce-done(r)
  gd = f32[2048]{0} all-gather-done(g)
  gs = f32[256]{0} slice(gd), slice={[256:512]}
  k = f32[256]{0} add(gs, rd)
  l = f32[256]{0} add(k, cd)
  ROOT o = f32[256]{0} add(l, n)
}
"""  # noqa: E501

SEND = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[256]{0} parameter(0)
  x = f32[256]{0} add(p, p)
  t = token[] after-all()
  s = (f32[256]{0}, u32[], token[]) send(x, t), channel_id=1
  r = (f32[256]{0}, u32[], token[]) recv(t), channel_id=2
  m = f32[256]{0} multiply(p, x)
  sd = token[] send-done(s), channel_id=1
  rd = (f32[256]{0}, token[]) recv-done(r), channel_id=2
  y = f32[256]{0} get-tuple-element(rd), index=0
  ROOT o = f32[256]{0} add(y, m)
}
"""

MODULES = {
    "loop_in_place": LOOP_IN_PLACE,
    "conditional": CONDITIONAL,
    "nested": NESTED,
    "calls": CALLS,
    "tuples": TUPLES,
    "no_copies": NO_COPIES,
}


def proto_of(text: str, *, compiler: Compiler) -> bytes:
    """Let XLA's parser read a module."""
    return parse(text.encode(), compiler=compiler).proto
