/**
 * Lets programs take methods from an object, as in `const { call } = session`: each method is bound to its object when it is read. To be
 * called once for a class, `bindMethods(this.prototype)`.
 */
export function bindMethods(prototype: object): void {
  const descriptors = Object.getOwnPropertyDescriptors(prototype) as Record<string, PropertyDescriptor>;
  for (const [name, { value: method, get: _, ...attributes }] of Object.entries(descriptors)) {
    if (name === 'constructor' || typeof method !== 'function') continue;
    Object.defineProperty(prototype, name, {
      configurable: true,
      enumerable: attributes.enumerable ?? false,
      get() {
        return this === prototype ? method : method.bind(this);
      },
      set(value: unknown) {
        Object.defineProperty(this, name, { value, configurable: true, writable: true, enumerable: true });
      },
    });
  }
}
