import { statfs } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * File systems whose files may lie on another machine, by their numbers in Linux (statfs(2)). FUSE may be
 * anything: sshfs, a bucket, what a virtual machine shares with its host.
 */
const NETWORK: ReadonlyMap<number, string> = new Map([
  [0x69_69, 'NFS'],
  [0x51_7b, 'SMB'],
  [0xff_53_4d_42, 'CIFS'],
  [0xfe_53_4d_42, 'SMB'],
  [0x01_02_19_97, '9p'],
  [0x65_73_55_46, 'FUSE'],
  [0x00_c3_64_00, 'Ceph'],
  [0x0b_d0_0b_d0, 'Lustre'],
  [0x47_50_46_53, 'GPFS'],
  [0x19_83_03_26, 'BeeGFS'],
  [0x53_46_41_4f, 'AFS'],
  [0x6b_41_46_53, 'AFS'],
  [0x73_75_72_45, 'Coda'],
  [0x01_16_19_70, 'GFS2'],
  [0x74_61_63_6f, 'OCFS2'],
  [0x78_6f_42_56, 'a folder of VirtualBox'],
  [0xba_cb_ac_bc, 'a folder of VMware'],
  [0x7c_7c_66_73, 'a folder of Parallels'],
])

/** Reads the number of the file system of a path. Rejects if the path is not there. */
type ReadFileSystem = (path: string) => Promise<{ readonly type: number }>

/**
 * Names the network file system that a database file lies on, or is going to; null if it lies on none, or
 * nobody can tell. SQLite's log is shared by memory, and its locks by the kernel: neither reaches another
 * machine.
 */
export async function networkFileSystemOf(
  file: string,
  read: ReadFileSystem = statfs,
): Promise<string | null> {
  if (process.platform !== 'linux') return null
  const found = await read(file)
    .catch(() => read(dirname(file)))
    .catch(() => null)
  return found === null ? null : (NETWORK.get(found.type >>> 0) ?? null)
}
