/** Decides which IP addresses are public. It compares numbers, so all notations of an address have the same result. */
import { BlockList, isIP } from 'node:net';

const IPV4: readonly (readonly [network: string, prefix: number, reason: string])[] = [
  ['0.0.0.0', 8, 'it means this host'],
  ['10.0.0.0', 8, 'it is a private address'],
  ['100.64.0.0', 10, 'it is a carrier’s private address'],
  ['127.0.0.0', 8, 'it is a loopback address'],
  ['168.63.129.16', 32, 'it is a cloud’s metadata address'],
  ['169.254.0.0', 16, 'it is a link-local or metadata address'],
  ['172.16.0.0', 12, 'it is a private address'],
  ['192.0.0.0', 24, 'it is reserved for protocols'],
  ['192.0.2.0', 24, 'it is reserved for documentation'],
  ['192.88.99.0', 24, 'it is a 6to4 relay'],
  ['192.168.0.0', 16, 'it is a private address'],
  ['198.18.0.0', 15, 'it is reserved for benchmarks'],
  ['198.51.100.0', 24, 'it is reserved for documentation'],
  ['203.0.113.0', 24, 'it is reserved for documentation'],
  ['224.0.0.0', 4, 'it is a multicast address'],
  ['240.0.0.0', 4, 'it is reserved'],
];

/** Exceptions inside of 2000::/3, the only allocated part of IPv6. Everything outside of it is refused. */
const IPV6: typeof IPV4 = [
  ['2001::', 23, 'it is reserved for protocols and tunnels'],
  ['2001:db8::', 32, 'it is reserved for documentation'],
  ['2002::', 16, 'it is a 6to4 tunnel'],
  ['3fff::', 20, 'it is reserved for documentation'],
];

const ipv4Lists = IPV4.map(([network, prefix, reason]) => ({ list: subnet(network, prefix, 'ipv4'), reason }));
const ipv6Lists = IPV6.map(([network, prefix, reason]) => ({ list: subnet(network, prefix, 'ipv6'), reason }));
const ipv6Public = subnet('2000::', 3, 'ipv6');
/** Prefixes whose last 32 bits are the IPv4 address that receives the packet: mapped addresses and NAT64. */
const ipv4Embedded = [subnet('::ffff:0:0', 96, 'ipv6'), subnet('64:ff9b::', 96, 'ipv6')];

function subnet(network: string, prefix: number, family: 'ipv4' | 'ipv6'): BlockList {
  const list = new BlockList();
  list.addSubnet(network, prefix, family);
  return list;
}

/** Explains why an IP address may not be reached, as the end of a sentence; undefined for a public one. */
export function nonPublicReason(address: string): string | undefined {
  const [withoutZone = ''] = address.split('%'); // a zone, as in fe80::1%eth0
  switch (isIP(withoutZone)) {
    case 4:
      return ipv4Lists.find(({ list }) => list.check(withoutZone, 'ipv4'))?.reason;
    case 6:
      if (ipv4Embedded.some((list) => list.check(withoutZone, 'ipv6')))
        return nonPublicReason(lastFourBytes(withoutZone));
      if (!ipv6Public.check(withoutZone, 'ipv6')) return 'it is not a public IPv6 address';
      return ipv6Lists.find(({ list }) => list.check(withoutZone, 'ipv6'))?.reason;
    default:
      return 'it is not an IP address';
  }
}

function lastFourBytes(ipv6: string): string {
  const dotted = /(?:\d+\.){3}\d+$/.exec(ipv6)?.[0];
  if (dotted !== undefined) return dotted;
  // URL parsing writes the shortest form, in which only zeros are missing: 64:ff9b:: ends in two zero groups.
  const normal = new URL(`http://[${ipv6}]`).hostname.slice(1, -1);
  const [head = '', tail] = normal.split('::');
  const groupsOf = (text: string): string[] => text.split(':').filter(Boolean);
  const headGroups = groupsOf(head);
  const tailGroups = tail === undefined ? [] : groupsOf(tail);
  const zeros = Array<string>(8 - headGroups.length - tailGroups.length).fill('0');
  const lastGroups = [...headGroups, ...zeros, ...tailGroups].slice(6).map((group) => Number.parseInt(group, 16));
  return lastGroups.flatMap((group) => [group >> 8, group & 0xff]).join('.');
}
