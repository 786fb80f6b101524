/** Compiles a pattern to a test of names. `*` stands for any characters, none too. */
export function compileGlob(pattern: string): (name: string) => boolean {
  const [head = '', ...rest] = pattern.split('*')
  const tail = rest.pop()
  if (tail === undefined) return (name) => name === pattern
  return (name) => {
    if (!name.startsWith(head)) return false
    let at = head.length
    for (const part of rest) {
      const found = name.indexOf(part, at)
      if (found < 0) return false
      at = found + part.length
    }
    return name.length - tail.length >= at && name.endsWith(tail)
  }
}
