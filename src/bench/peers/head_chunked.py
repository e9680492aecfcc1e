import numpy as np

labels = np.load("labels.npy")
keep = np.ones(len(labels), dtype=bool)
keep[np.loadtxt("forget", dtype=int)] = False
gram, cross, chunk = 0.0, 0.0, 16384
with open("features.npy", "rb") as file:
    np.lib.format.read_magic(file)
    (_, width), _, dtype = np.lib.format.read_array_header_1_0(file)
    for start in range(0, len(labels), chunk):
        kept = keep[start : start + chunk]
        z = np.fromfile(file, dtype, width * len(kept)).reshape(-1, width)[kept].astype(np.float64)
        z = np.column_stack([z, np.ones(len(z))])
        gram = gram + z.T @ z
        cross = cross + z.T @ np.eye(10)[labels[start : start + chunk][kept]]
np.save("head.npy", np.linalg.solve(gram + 1e-3 * np.eye(width + 1), cross))
